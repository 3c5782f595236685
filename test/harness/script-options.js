// The command line of scripts that are run by hand: `npm run test:soak -- --minutes 5`.
import { parseArgs } from 'node:util'

/**
 * A script's options: a number where the default is one, numbers where it is a list of numbers, otherwise a string. Prints
 * the usage and exits with 0 for `--help`, with 2 for invalid options.
 * @param command as it is typed, up to `--`
 * @param known   by name: the default, a description and, if only some strings are allowed, these
 */
export function scriptOptions(command, known, args = process.argv.slice(2)) {
  try {
    const options = Object.fromEntries([...Object.keys(known), 'help'].map((name) => [name, typeOf(known, name)]))
    const { help, ...given } = parseArgs({ args, options }).values
    if (!help) return Object.fromEntries(Object.entries(known).map((entry) => optionOf(entry, given)))
    process.stdout.write(usage(command, known))
    process.exit(0)
  } catch (error) {
    process.stderr.write(`${error.message}\n\n${usage(command, known)}`)
    process.exit(2)
  }
}

function typeOf(known, name) {
  return name in known ? { type: 'string' } : { type: 'boolean', short: 'h' }
}

function optionOf([name, [standard, , allowed]], given) {
  const text = given[name]
  if (text === undefined) return [name, standard]
  if (Array.isArray(standard)) return [name, text.split(',').map((part) => numberOf(name, part))]
  if (typeof standard === 'number') return [name, numberOf(name, text)]
  if (allowed && !allowed.includes(text)) throw new Error(`--${name} is one of ${allowed.join(', ')}`)
  return [name, text]
}

function numberOf(name, text) {
  if (!/^-?\d+(\.\d+)?$/.test(text)) throw new Error(`--${name} is a number`)
  return Number(text)
}

function usage(command, known) {
  const rows = Object.entries(known).map(([name, [standard, what, allowed]]) => {
    const kind = Array.isArray(standard) ? 'N,...' : typeof standard === 'number' ? 'N' : allowed ? 'NAME' : 'TEXT'
    const details = [
      allowed && `one of ${allowed.join(', ')}`,
      !['', Number.POSITIVE_INFINITY].includes(standard) && `by default ${standard}`,
    ]
    return [`--${name} ${kind}`, [what, ...details.filter(Boolean)].join('; ')]
  })
  const width = Math.max(...rows.map(([option]) => option.length))
  return `${command} -- [options]\n\n${rows.map(([option, what]) => `  ${option.padEnd(width)}  ${what}\n`).join('')}`
}
