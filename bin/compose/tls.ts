// Certificates of the RPC doors: files named by the configuration, read again when they change.
import type { TlsMaterial } from '../../services/rpc/listener.js'
import { type Config, ConfigError } from '../config.js'
import type { Log } from '../telemetry/log.js'
import { readTlsFiles } from '../tls-files.js'

/** @throws ConfigError naming every variable whose file is missing, unreadable or not what it should be. */
export function readTls(config: Config): TlsMaterial {
  const { material, problems } = readTlsFiles(config)
  if (problems.length > 0) throw new ConfigError(problems)
  return material
}

const LOOK_EVERY_MS = 30_000

/** Calls `onChange` when the files hold something other than `material`, within 30 s or at SIGHUP. */
export function watchTls(
  config: Config,
  material: TlsMaterial,
  onChange: (material: TlsMaterial) => void,
  log: Log,
): { stop(): void } {
  let known = JSON.stringify(material)
  const look = () => {
    try {
      const read = readTls(config)
      const text = JSON.stringify(read)
      if (text === known) return
      onChange(read)
      known = text
    } catch (error) {
      log.failure('the certificates could not be read again', error) // half-written, perhaps: then the next look finds them whole
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
