// The certificate files that the configuration names, and what is wrong with them.
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { TlsMaterial } from '../services/rpc/listener.js'
import { errorCode } from './error-code.js'
import type { ConfigProblem } from './settings.js'

/** Names of PEM files, as the configuration has them. */
interface TlsFiles {
  readonly rpcTlsCert: string
  readonly rpcTlsKey: string
  readonly rpcTlsCa: string
}

/** What the files hold; to be used only when there are no problems. */
export function readTlsFiles(config: TlsFiles): {
  readonly material: TlsMaterial
  readonly problems: readonly ConfigProblem[]
} {
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
  const unread = new Set(problems.map(({ variable }) => variable))
  return { material, problems: [...problems, ...unusable(material, unread)] }
}

/** An operator who is warned this long before a certificate ends has time to replace it. */
export const CERTIFICATE_SOON_MS = 7 * 86_400_000

/** When a certificate ends, in ms since 1970 UTC. @throws what the parser throws when it is not one */
export function endOf(certificate: string): number {
  return Date.parse(new X509Certificate(certificate).validTo)
}

/** What is wrong with those that could be read. */
function unusable({ cert, key, ca }: TlsMaterial, unread: ReadonlySet<string>): ConfigProblem[] {
  const problems: ConfigProblem[] = []
  const parsed = <T>(variable: string, parse: () => T): T | undefined => {
    if (unread.has(variable)) return undefined
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
