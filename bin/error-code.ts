/** The system's code for a failure, `ENOENT` for example; `otherwise` for one without a code. */
export function errorCode(error: unknown, otherwise: string): string {
  return error instanceof Error && 'code' in error ? String(error.code) : otherwise
}

/** Whether it is a system error about a file or an address, EACCES or EAI_AGAIN for example, and not a defect. */
export function isOfSystem(error: unknown): error is Error {
  return /^E(?!RR_)[A-Z_]+$/.test(errorCode(error, ''))
}

const READING: Readonly<Record<string, string>> = { ENOENT: 'there is no such file', EISDIR: 'it is a folder' }
const WRITING: Readonly<Record<string, string>> = { ENOENT: 'its folder does not exist', EISDIR: 'it is a folder' }

/** The message for a file that cannot be read. */
export function unreadable(file: string, error: unknown): string {
  return `cannot read ${file}${because(READING, error)}`
}

/** The message for a file that cannot be written. */
export function unwritable(file: string, error: unknown): string {
  return `cannot write ${file}${because(WRITING, error)}`
}

function because(words: Readonly<Record<string, string>>, error: unknown): string {
  const code = errorCode(error, 'unknown')
  return words[code] === undefined ? ` (${code})` : `: ${words[code]}`
}
