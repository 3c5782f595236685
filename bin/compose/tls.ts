// Certificates of the RPC doors: files named by the configuration, read again when they change.
import { readFileSync } from 'node:fs'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import type { Config } from '../config.js'
import { errorCode } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'

/** @throws CommandError naming the variable whose file is missing or unreadable. */
export function readTls(config: Config): TlsMaterial {
  return {
    cert: readPem(config.rpcTlsCert, 'RPC_TLS_CERT'),
    key: readPem(config.rpcTlsKey, 'RPC_TLS_KEY'),
    ca: readPem(config.rpcTlsCa, 'RPC_TLS_CA'),
  }
}

const LOOK_EVERY_MS = 30_000

/** Calls `onChange` when the files hold something new, within 30 s or at SIGHUP. */
export function watchTls(
  config: Config,
  onChange: (material: TlsMaterial) => void,
  onError: (error: unknown) => void,
): { stop(): void } {
  let known = JSON.stringify(readTls(config))
  const look = () => {
    try {
      const material = readTls(config)
      const text = JSON.stringify(material)
      if (text === known) return
      onChange(material)
      known = text
    } catch (error) {
      onError(error) // half-written files: the next look finds them whole
    }
  }
  const timer = setInterval(look, LOOK_EVERY_MS)
  timer.unref()
  process.on('SIGHUP', look)
  return {
    stop() {
      clearInterval(timer)
      process.off('SIGHUP', look)
    },
  }
}

function readPem(file: string, variable: string): string {
  if (file === '') throw new CommandError(`${variable} must name a PEM file for a TLS address`, EXIT.configuration)
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    const reason = errorCode(error, 'unreadable')
    throw new CommandError(`${variable}: ${file} cannot be read (${reason})`, EXIT.configuration)
  }
}
