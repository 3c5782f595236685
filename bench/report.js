// The report: on the terminal, and in docs/performance.md between its marks.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { chart } from './chart.js'
import { contestants, lines, surveyAuthVariables } from './contestants.js'
import { figuresOf } from './figures.js'
import { SERVER_FLAGS } from './processes.js'
import { root } from './root.js'

const BEGIN = '<!-- figures: written by `npm run bench` -->'
const CHART = '![Requests a second, as a share of what node:http can answer](performance.svg)'
const END = '<!-- end of figures -->'

/** @returns the printed figures */
export function printReport(results) {
  const figures = figuresOf(results)
  const print = (text) => process.stdout.write(`${text}\n`)
  for (const section of sections(results, figures)) {
    print(`\n${section.title}\n`)
    if (section.table) print(alignedTable(section.table))
    if (section.text) print(section.text)
  }
  for (const { name, line, failures, examples } of results.cells.filter((one) => one.failures > 0)) {
    print(`\nFAILED: ${contestants[name].title}, ${lines[line].title}: ${failures} answers were wrong or missing`)
    for (const { why, times } of examples) print(`  ${times} times: ${why}`)
  }
  print(`\n${results.seconds} s`)
  return figures
}

/** Replaces the text between the marks and keeps what was written by hand around them. */
export function writeDocs(results) {
  const figures = figuresOf(results)
  const file = path.join(root, 'docs', 'performance.md')
  const text = readFileSync(file, 'utf8')
  const begin = text.indexOf(BEGIN)
  const end = text.indexOf(END)
  if (begin < 0 || end < begin) throw new Error('docs/performance.md has lost its marks')
  const parts = sections(results, figures).map(({ title, table, text: prose }) =>
    [`### ${title}`, ...(table ? [markdownTable(table)] : []), ...(prose ? [prose] : [])].join('\n\n'),
  )
  const generated = [BEGIN, CHART, ...parts, END].join('\n\n')
  writeFileSync(file, text.slice(0, begin) + generated + text.slice(end + END.length))
  writeFileSync(path.join(root, 'docs', 'performance.svg'), chart(figures, results))
  execFileSync(path.join(root, 'node_modules', '.bin', 'biome'), ['format', '--write', file], { stdio: 'ignore' })
}

function sections(results, figures) {
  return [
    { title: 'Run', text: runText(results) },
    {
      title: 'Requests a second (share of the ceiling)',
      table: capacityTable(figures),
      text: disturbanceText(figures),
    },
    { title: 'CPU time of a request, µs', table: cpuTable(figures) },
    ...(figures.judged.length > 0 ? [{ title: 'Targets', table: targetTable(figures) }] : []),
    ...(figures.rows.some((one) => one.open.length > 0)
      ? [{ title: 'Latency, ms', table: latencyTable(figures), text: latencyText(figures) }]
      : []),
    ...(figures.hops.length > 0
      ? [{ title: 'What each further process adds to the p50 at 50 %, ms', table: hopTable(figures) }]
      : []),
    { title: 'Memory at the end, MiB', table: memoryTable(figures) },
  ]
}

function runText({ command, date, machine, load, isPinned, settings, cells }) {
  const { durationMs, openMs, open, connections } = settings
  const loops = ` of ${durationMs / 1000} s${open ? `, and ${openMs / 1000} s for each latency` : ''}`
  const rounds = cells[0]?.rates.length ?? 0
  const versions = Object.entries(machine.versions).map(([name, version]) => `${name} ${version}`)
  const pinned = isPinned
    ? 'servers on one core, all processes of a contestant together; the generator on another'
    : 'not pinned to cores, so figures are no more than hints'
  return [
    `- \`${command}\`, ${date}`,
    `- ${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB; ${machine.system}; databases on ${machine.fileSystem}`,
    `- Node ${machine.node} with ${SERVER_FLAGS.map((flag) => `\`${flag}\``).join(' ')}, ${versions.join(', ')}`,
    `- ${connections} connections, ${rounds} ${rounds === 1 ? 'round' : 'rounds'}${loops}; ${pinned}`,
    `- load of the machine ${load.before.toFixed(1)} before and ${load.after.toFixed(1)} after; ${percent(load.stolen)} of its time taken by other machines`,
    `- survey-auth with ${Object.entries(surveyAuthVariables)
      .map(([name, value]) => `\`${name}=${value}\``)
      .join(' ')}, otherwise defaults; its log goes to a file`,
  ].join('\n')
}

/** Lines down, contestants across; a dash where nothing was measured. */
function byContestant({ lines: shown, names, row }, textOf) {
  return {
    head: ['', ...names.map((name) => contestants[name].title)],
    rows: shown.map((line) => [
      lines[line].title,
      ...names.map((name) => {
        const one = row(line, name)
        return one ? textOf(one, name) : '–'
      }),
    ]),
  }
}

function capacityTable(figures) {
  return byContestant(figures, (one, name) => {
    const share = one.ofCeiling === undefined || name === 'ceiling' ? '' : ` (${ratio(one.ofCeiling)})`
    return `${whole(one.rate)}${share}`
  })
}

function disturbanceText(figures) {
  const { waited, isDisturbed } = figures
  const advice = isDisturbed ? ', which is too much: this run decides nothing' : ''
  return `The generator waited for its core, which other programs used, ${percent(waited)} of the time${advice}. ${generatorText(figures)}`
}

function generatorText({ rows }) {
  const busy = rows.filter((one) => one.isGeneratorBusy)
  const most = Math.max(...rows.map((one) => one.busy))
  if (busy.length === 0) return `The generator's core was at most ${percent(most)} busy.`
  const where = busy.map(({ name, line }) => `${contestants[name].title}: ${lines[line].title}`)
  return `The generator was more than 95 % busy, so the server could have done more: ${where.join('; ')}.`
}

function cpuTable(figures) {
  return byContestant(figures, ({ cpu }) => known(cpu, (micros) => micros.toFixed(1)))
}

function targetTable({ judged, isDisturbed }) {
  return {
    head: ['', 'of', 'target', 'measured', 'middle half of the rounds', 'by CPU time', ''],
    rows: judged.map(({ line, name, of, target, ratio: measured, spread, byCpu, isMet }) => [
      `${lines[line].title}: ${contestants[name].title}`,
      contestants[of].title,
      `≥ ${target}`,
      ratio(measured),
      spread.map(ratio).join('–'),
      ratio(byCpu),
      verdict(isMet, isDisturbed),
    ]),
  }
}

function hopTable({ hops, isDisturbed }) {
  return {
    head: ['', 'processes', 'target', 'measured', 'middle half of the rounds', ''],
    rows: hops.map(({ line, count, addedMs, spread, mostMs, isMet }) => [
      lines[line].title,
      String(count),
      `< ${mostMs}`,
      ms(addedMs),
      spread.map(ms).join(' to '),
      verdict(isMet, isDisturbed),
    ]),
  }
}

function verdict(isMet, isDisturbed) {
  if (isDisturbed) return 'undecided'
  return isMet ? 'met' : 'missed'
}

function latencyTable({ rows }) {
  const measured = rows.filter((one) => one.open.length > 0)
  const shares = [...new Set(measured.flatMap((one) => one.open.map(({ share }) => share)))]
  return {
    head: [
      '',
      'capacity: p50',
      'p99',
      ...shares.flatMap((share) => [`${percent(share)}: p50`, 'p99', 'p99.9', 'loop p99']),
    ],
    rows: measured.map((one) => [
      `${lines[one.line].title}: ${contestants[one.name].title}`,
      ms(one.latencyMs.p50),
      ms(one.latencyMs.p99),
      ...shares.flatMap((share) => latencyCells(one.open.find((open) => open.share === share))),
    ]),
  }
}
function latencyCells(open) {
  if (!open) return ['–', '–', '–', '–']
  const { count, p50, p99, p999, loopDelayMs, overloaded } = open
  const remark = overloaded === 0 ? '' : ` (overloaded in ${overloaded} ${overloaded === 1 ? 'round' : 'rounds'})`
  const ofMany = (share, value) => (count * (1 - share) < 1 ? '–' : ms(value)) // it would be the longest
  return [ms(p50), ofMany(0.99, p99), `${ofMany(0.999, p999)}${remark}`, ms(loopDelayMs)]
}

function latencyText({ rows }) {
  const worst = Math.max(...rows.flatMap((one) => one.open.map(({ worstLagMs }) => worstLagMs)))
  return `The generator itself was at most ${ms(worst)} ms late; that is part of the latencies.`
}

function memoryTable({ names, memory }) {
  return {
    head: names.map((name) => contestants[name].title),
    rows: [names.map((name) => known(memory[name], (mebibytes) => mebibytes.toFixed(0)))],
  }
}

function markdownTable({ head, rows }) {
  const line = (cells) => `| ${cells.join(' | ')} |`
  const rule = head.map((_, column) => (column === 0 && head[0] === '' ? '---' : '--:'))
  return [line(head), line(rule), ...rows.map(line)].join('\n')
}

function alignedTable({ head, rows }) {
  const all = [head, ...rows]
  const widths = head.map((_, column) => Math.max(...all.map((cells) => cells[column].length)))
  const isText = head[0] === ''
  return all
    .map((cells) =>
      cells
        .map((cell, column) => (column === 0 && isText ? cell.padEnd(widths[column]) : cell.padStart(widths[column])))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

const formatWhole = new Intl.NumberFormat('en')

function whole(value) {
  return formatWhole.format(Math.round(value))
}

/** A dash for what could not be measured here. */
function known(value, textOf) {
  return Number.isNaN(value) ? '–' : textOf(value)
}

function ratio(value) {
  return known(value, () => (value >= 10 ? value.toFixed(1) : value.toFixed(2)))
}

function percent(share) {
  return Number.isNaN(share) ? 'an unknown share' : `${(share * 100).toFixed(0)} %`
}

function ms(value) {
  return known(value, () => (value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2)))
}
