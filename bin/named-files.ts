// The JSON files that variables name: what reads them is heavy, and loaded only if there are some.
import type { Mode } from './compose/addresses.js'
import { type Config, ConfigError } from './config.js'
import type { ConfigProblem } from './settings.js'

/**
 * Reads those of the processes that `mode` starts: a gateway has a brand, a token service has providers.
 * @throws ConfigError that names all that is wrong in them
 */
export async function checkNamedFiles(config: Config, mode: Mode = 'all'): Promise<void> {
  const uses = (part: Mode) => mode === 'all' || mode === part
  const problems: ConfigProblem[] = []
  const check = (read: () => unknown) => {
    try {
      read()
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      problems.push(...error.problems)
    }
  }
  if (uses('gateway') && config.brandFile !== '') {
    const { readBrandFile } = await import('./brand-file.js')
    check(() => readBrandFile(config.brandFile))
  }
  if (uses('token') && config.oidcProvidersFile !== '') {
    const { readOidcProviders } = await import('./oidc-providers.js')
    check(() => readOidcProviders(config.oidcProvidersFile))
  }
  if (problems.length > 0) throw new ConfigError(problems)
}
