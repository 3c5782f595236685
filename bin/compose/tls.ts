// Certificates of the RPC doors: files named by the configuration, read again when they change.
import { isDeepStrictEqual } from 'node:util'
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { type Config, ConfigError } from '../config.js'
import type { Log } from '../telemetry/log.js'
import type { Metrics } from '../telemetry/metrics.js'
import { CERTIFICATE_SOON_MS, endOf, readTlsFiles } from '../tls-files.js'

/** @throws ConfigError naming every variable whose file is missing, unreadable or not what it should be. */
export function readTls(config: Config): TlsMaterial {
  const { material, problems } = readTlsFiles(config)
  if (problems.length > 0) throw new ConfigError(problems)
  return material
}

const LOOK_EVERY_MS = 30_000
const TELL_EVERY_MS = 86_400_000

export interface TlsWatch {
  readonly config: Config
  /** What the files held last. */
  readonly material: TlsMaterial
  /** Called when they hold something else, within 30 s or at SIGHUP. */
  readonly onChange: (material: TlsMaterial) => void
  readonly log: Log
  readonly metrics: Pick<Metrics, 'certificate'>
}

/** Follows the files, and tells when the certificate ends: the metrics always, the log from a week before, once a day. */
export function watchTls({ config, material, onChange, log, metrics }: TlsWatch): { stop(): void } {
  let known = material
  const tell = () => {
    const endsAtMs = endOf(known.cert)
    metrics.certificate(config.rpcTlsCert, endsAtMs)
    if (endsAtMs - Date.now() > CERTIFICATE_SOON_MS) return
    log.warning(`the certificate ${config.rpcTlsCert} ends at ${new Date(endsAtMs).toISOString()}`)
  }
  const look = () => {
    try {
      const read = readTls(config)
      if (isDeepStrictEqual(read, known)) return
      onChange(read)
      known = read
      log.note(`the certificate files have changed: ${config.rpcTlsCert} is used as it is there now`)
      tell()
    } catch (error) {
      log.failure('the certificates could not be read again', error) // half-written, perhaps: then the next look finds them whole
    }
  }
  tell()
  const timers = [setInterval(look, LOOK_EVERY_MS), setInterval(tell, TELL_EVERY_MS)]
  for (const timer of timers) timer.unref()
  process.on('SIGHUP', look)
  return {
    stop() {
      for (const timer of timers) clearInterval(timer)
      process.off('SIGHUP', look)
    },
  }
}
