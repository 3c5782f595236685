// Reading standard input, and other streams, as text.
import { errorCode } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { message } from '../output.js'

const MAX_PASSWORD_BYTES = 1024 // the contract's bound, CreateUserRequest.password

/** All of standard input, at most `maxBytes`. @throws CommandError when it is longer or not UTF-8. */
export function readStdin(maxBytes: number): Promise<string> {
  return readText(process.stdin, { source: 'standard input', maxBytes })
}

/** All of a stream, which comes from `source`. @throws CommandError when it is longer or not UTF-8; what the stream throws */
export async function readText(
  stream: AsyncIterable<Uint8Array>,
  { source, maxBytes }: { readonly source: string; readonly maxBytes: number },
): Promise<string> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of stream) {
    const bytes = Buffer.from(chunk)
    length += bytes.length
    if (length > maxBytes) throw new CommandError(`${source} is longer than ${maxBytes} bytes`, EXIT.failure)
    chunks.push(bytes)
  }
  return textOf(Buffer.concat(chunks), source)
}

function textOf(bytes: Uint8Array, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (error) {
    if (errorCode(error, '') !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error // too long for a string, for example
    throw new CommandError(`${source} is not UTF-8`)
  }
}

/** A password from standard input, without the newline that `echo` adds and the byte order mark that some editors put first. */
export async function readPassword(): Promise<string> {
  if (process.stdin.isTTY) message('type the password, which this terminal shows, then Enter and Ctrl-D')
  const text = await readStdin(MAX_PASSWORD_BYTES + Buffer.byteLength('\ufeff\r\n'))
  const password = text.replace(/^\ufeff/, '').replace(/\r?\n$/, '')
  if (password === '') {
    throw new CommandError(
      'no password on standard input',
      EXIT.usage,
      'pipe it in, or redirect a file: … < password.txt',
    )
  }
  return password
}
