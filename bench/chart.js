// The chart of docs/performance.md: bars by line and contestant, as a share of the ceiling of the same rounds.
import { contestants, lines } from './contestants.js'

const WIDTH = 860
const LEFT = 170
const RIGHT = 150
const BAR = 14
const GAP = 18
const TOP = 64
const LEGEND_COLUMN = 210

/** Readable on light and dark backgrounds. */
const colours = {
  'all-in-one': '#2f81f7',
  separate: '#8957e5',
  'oidc-provider': '#db6d28',
  'node-oauth2-server': '#3fb950',
}

/** @returns the chart as SVG */
export function chart({ lines: shown, names, row, waited, isDisturbed }, { date, machine }) {
  const drawn = names.filter((name) => name in colours)
  const groups = shown.map((line) => drawn.map((name) => row(line, name)).filter((one) => one?.ofCeiling !== undefined))
  const widest = Math.max(1, ...groups.flat().map((one) => one.ofCeiling))
  const scale = (WIDTH - LEFT - RIGHT) / widest
  const parts = []
  let y = TOP
  for (const group of groups.filter((bars) => bars.length > 0)) {
    const middle = y + (group.length * BAR) / 2 + 4
    parts.push(
      `<text class="line" x="${LEFT - 12}" y="${middle}" text-anchor="end">${lines[group[0].line].title}</text>`,
    )
    for (const { name, rate, ofCeiling } of group) {
      const length = Math.max(1, ofCeiling * scale)
      const label = `${Math.round(rate).toLocaleString('en')}/s · ${ofCeiling.toFixed(2)}`
      parts.push(
        `<rect x="${LEFT}" y="${y}" width="${length.toFixed(1)}" height="${BAR - 2}" rx="2" fill="${colours[name]}"/>`,
        `<text class="value" x="${(LEFT + length + 6).toFixed(1)}" y="${y + 10}">${label}</text>`,
      )
      y += BAR
    }
    y += GAP
  }
  const end = LEFT + scale
  const legend = drawn.map((name, index) => {
    const x = LEFT + (index % 3) * LEGEND_COLUMN
    const top = 12 + Math.floor(index / 3) * 18
    return `<rect x="${x}" y="${top}" width="12" height="12" rx="2" fill="${colours[name]}"/><text class="line" x="${x + 18}" y="${top + 10}">${contestants[name].title}</text>`
  })
  const height = y + 38
  const disturbance = isDisturbed ? `; others had the cores for ${(waited * 100).toFixed(0)} % of the time` : ''
  const footnote = `${date}, ${machine.cpu}, Node ${machine.node}${disturbance}`
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Requests a second of survey-auth and its peers as a share of what node:http can answer">
<style>
text { font: 12px system-ui, sans-serif; fill: #3d444d }
.value { font-size: 11px; fill: #59636e }
.ceiling { stroke: #848d97; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { text { fill: #d1d7e0 } .value { fill: #9198a1 } }
</style>
${legend.join('\n')}
<line class="ceiling" x1="${end}" x2="${end}" y1="${TOP - 6}" y2="${y - GAP + 6}"/>
${parts.join('\n')}
<text class="value" x="${end}" y="${y + 8}" text-anchor="middle">1.00 = a constant answer on node:http</text>
<text class="value" x="${WIDTH - 8}" y="${y + 28}" text-anchor="end">${escaped(footnote)}</text>
</svg>
`
}

function escaped(text) {
  return text.replace(/[&<>]/g, (character) => `&#${character.charCodeAt(0)};`)
}
