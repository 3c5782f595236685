/** What the system calls a failure, `ENOENT` for example; `otherwise` of one that has no such name. */
export function errorCode(error: unknown, otherwise: string): string {
  return error instanceof Error && 'code' in error ? String(error.code) : otherwise
}

/** Whether it is the system's word on a file or an address, EACCES for example, and no defect. */
export function isOfSystem(error: unknown): error is Error {
  return /^E[A-Z]+$/.test(errorCode(error, ''))
}
