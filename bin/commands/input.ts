// What commands read: files, or standard input, as text.
import { createReadStream, readFileSync, statSync } from 'node:fs'
import { logoOf } from '../../services/token/logo.js'
import { errorCode, isOfSystem, unreadable } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { askNewPassword, isAtTerminal } from './terminal.js'

const MAX_PASSWORD_BYTES = 1024 // the contract's bound, CreateUserRequest.password

/** The text of a file; `-` is standard input. @throws CommandError when it cannot be read, is longer or not UTF-8. */
export async function readFileOrInput(file: string, maxBytes: number): Promise<string> {
  if (file === '-') return readText(process.stdin, 'standard input', maxBytes)
  try {
    const { size } = statSync(file) // 0 for a pipe
    if (size > maxBytes) throw new CommandError(`${file} is longer than ${maxBytes} bytes`)
    return await readText(createReadStream(file), file, maxBytes)
  } catch (error) {
    throw isOfSystem(error) ? new CommandError(unreadable(file, error)) : error
  }
}

async function readText(stream: AsyncIterable<Uint8Array>, source: string, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of stream) {
    length += chunk.length
    if (length > maxBytes) throw new CommandError(`${source} is longer than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(chunks))
  } catch (error) {
    if (errorCode(error, '') !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error // too long for a string, for example
    throw new CommandError(`${source} is not UTF-8`)
  }
}

/**
 * A new password: asked for on a terminal, else standard input, without the newline that `echo` adds and the byte order mark that
 * some editors put first.
 */
export async function readPassword(): Promise<string> {
  if (isAtTerminal()) return askNewPassword()
  const text = await readFileOrInput('-', MAX_PASSWORD_BYTES + Buffer.byteLength('\ufeff\r\n'))
  const password = text.replace(/^\ufeff/, '').replace(/\r?\n$/, '')
  if (password !== '') return password
  throw new CommandError(
    'no password on standard input',
    EXIT.usage,
    'pipe it in, or redirect a file: … < password.txt',
  )
}

/** The bytes of a picture. @throws CommandError when the file cannot be read or is none */
export function readLogo(file: string): Uint8Array {
  try {
    return logoOf(readFileSync(file)).body
  } catch (error) {
    throw new CommandError(
      isOfSystem(error) ? unreadable(file, error) : `${file} ${error instanceof Error ? error.message : ''}`,
    )
  }
}
