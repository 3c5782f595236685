// Certificates of the RPC doors: files named by the configuration, read again when they change.
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { type Config, ConfigError, type ConfigProblem } from '../config.js'
import { errorCode } from '../error-code.js'

/** @throws ConfigError naming every variable whose file is missing, unreadable or not what it should be. */
export function readTls(config: Config): TlsMaterial {
  const problems: ConfigProblem[] = []
  const read = (file: string, variable: string): string => {
    try {
      if (file !== '') return readFileSync(file, 'utf8')
      problems.push({ variable, message: 'must name a PEM file for a TLS address' })
    } catch (error) {
      problems.push({ variable, message: `names a file that cannot be read: ${file} (${errorCode(error, 'unknown')})` })
    }
    return ''
  }
  const material = {
    cert: read(config.rpcTlsCert, 'RPC_TLS_CERT'),
    key: read(config.rpcTlsKey, 'RPC_TLS_KEY'),
    ca: read(config.rpcTlsCa, 'RPC_TLS_CA'),
  }
  if (problems.length === 0) problems.push(...unusable(material))
  if (problems.length > 0) throw new ConfigError(problems)
  return material
}

function unusable({ cert, key, ca }: TlsMaterial): ConfigProblem[] {
  const problems: ConfigProblem[] = []
  const parsed = <T>(variable: string, parse: () => T): T | undefined => {
    try {
      return parse()
    } catch (error) {
      problems.push({ variable, message: `names no PEM file of that kind (${errorCode(error, 'unknown')})` })
      return undefined
    }
  }
  const certificate = parsed('RPC_TLS_CERT', () => new X509Certificate(cert))
  const privateKey = parsed('RPC_TLS_KEY', () => createPrivateKey(key))
  parsed('RPC_TLS_CA', () => new X509Certificate(ca))
  if (certificate && privateKey && !certificate.checkPrivateKey(privateKey)) {
    problems.push({ variable: 'RPC_TLS_KEY', message: 'is not the key of RPC_TLS_CERT' })
  }
  return problems
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
