import { median } from './stats.js'
export function printReport(results) {
  for (const c of results.cells)
    console.log(
      c.line,
      c.name,
      median(c.rates).toFixed(0),
      'cpu',
      c.cpuMicros.map((a) => a.map((x) => x.toFixed(0)).join('+')).join(' '),
      'busy',
      c.busy.toFixed(2),
      'fail',
      c.failures,
      JSON.stringify(c.examples),
    )
}
export function writeDocs() {}
