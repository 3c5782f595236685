// The command line of `npm run bench -- ...`.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { contestants, isBaseline, isOnPostgres, lines } from './contestants.js'

const HELP = `npm run bench -- [options]

  --quick               all lines within 3 minutes; the default takes 15 to 20
  --only NAME,...       of ${Object.keys(contestants).join(', ')};
                        the table on PostgreSQL: ceiling,${Object.keys(contestants)
                          .filter((name) => isOnPostgres(name) && !isBaseline(name))
                          .join(',')}
  --baseline FOLDER     measure the survey-auth of another checkout, installed, beside this one: before and after
  --lines NAME,...      of ${Object.keys(lines).join(', ')}
  --rounds N            rounds, 1 to 50
  --seconds N           length of one round of the closed loop, 0.2 to 60
  --minutes N           leave out rounds that would end later, 1 to 120
  --no-open             capacity only, without the latencies at 50 % and 80 % of it
  --docs                write docs/performance.md and .svg; a run without any option does it too if it is
                        whole, pinned to cores and undisturbed
  --profile FOLDER      keep a CPU profile of each survey-auth process; makes them slower
  --out FILE            write everything that was measured as JSON
`

const LONG = {
  rounds: 8,
  repeats: 2,
  durationMs: 1_000, // short, so that contestants are measured close to each other
  warmupMs: 5_000, // code that runs once for many calls, between processes, is compiled late
  openMs: 1_000,
  grants: 10_000,
  users: 20_000,
  budgetMs: 20 * 60_000,
}
const QUICK = {
  rounds: 3,
  repeats: 0,
  durationMs: 700,
  warmupMs: 500,
  openMs: 300,
  grants: 2_000,
  users: 5_000,
  budgetMs: 150_000,
}
const CONNECTIONS = 64

/** @param {string[]} args invalid ones end the process */
export function options(args) {
  try {
    return read(args)
  } catch (error) {
    process.stderr.write(`bench: ${error.message}\n\n${HELP}`)
    process.exit(2)
  }
}

function read(args) {
  const { values, tokens } = parseArgs({
    args,
    tokens: true,
    options: {
      quick: { type: 'boolean' },
      only: { type: 'string' },
      baseline: { type: 'string' },
      lines: { type: 'string' },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      minutes: { type: 'string' },
      'no-open': { type: 'boolean' },
      docs: { type: 'boolean' },
      profile: { type: 'string' },
      out: { type: 'string' },
      help: { type: 'boolean', short: 'h' },
    },
  })
  if (values.help) {
    process.stdout.write(HELP)
    process.exit(0)
  }
  const preset = values.quick ? QUICK : LONG
  const seconds = values.seconds === undefined ? preset.durationMs / 1000 : bounded('seconds', values.seconds, 0.2, 60)
  const isWhole = Object.keys(values).every((name) => name === 'out')
  return {
    ...preset,
    connections: CONNECTIONS,
    baseline: values.baseline && path.resolve(values.baseline),
    only: wantedOf(values),
    lines: chosenOf('lines', values.lines, lines),
    rounds: values.rounds === undefined ? preset.rounds : Math.round(bounded('rounds', values.rounds, 1, 50)),
    durationMs: seconds * 1000,
    budgetMs: values.minutes === undefined ? preset.budgetMs : bounded('minutes', values.minutes, 1, 120) * 60_000,
    open: !values['no-open'],
    docs: values.docs ? 'always' : isWhole ? 'whole' : 'never',
    profile: values.profile && path.resolve(values.profile),
    out: values.out && writable(values.out),
    command: shownCommand(tokens),
  }
}

/** A baseline needs a folder; contestants that bring a PostgreSQL take part only when named. */
function wantedOf({ baseline, only }) {
  const names = chosenOf('only', only, contestants)
  if (only === undefined)
    return names.filter((name) => !isOnPostgres(name) && (!isBaseline(name) || baseline !== undefined))
  if (names.some(isBaseline) !== (baseline !== undefined))
    throw new Error('--baseline FOLDER and a baseline in --only belong together')
  return names
}

function writable(file) {
  const folder = path.dirname(path.resolve(file))
  if (!existsSync(folder)) throw new Error(`--out: there is no folder ${folder}`)
  return file
}

/** Fit to publish: without paths of this machine. */
function shownCommand(tokens) {
  return tokens
    .filter(({ name }) => name !== 'out' && name !== 'profile')
    .map(({ name, value }) => (value === undefined ? `--${name}` : `--${name} ${name === 'baseline' ? '…' : value}`))
    .join(' ')
}

function chosenOf(option, text, table) {
  if (text === undefined) return Object.keys(table)
  const names = new Set(text.split(',').map((name) => name.trim()))
  for (const name of names) if (!Object.hasOwn(table, name)) throw new Error(`--${option}: there is no ${name}`)
  return Object.keys(table).filter((name) => names.has(name))
}

function bounded(option, text, min, max) {
  const value = Number(text)
  if (!(value >= min && value <= max)) throw new Error(`--${option} must be from ${min} to ${max}`)
  return value
}
