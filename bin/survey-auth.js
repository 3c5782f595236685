#!/bin/sh
':' //; exec node --v8-pool-size=1 --min-semi-space-size=16 --no-memory-reducer --no-allocation-site-pretenuring "$0" "$@"
// The command `survey-auth`: compiles if needed, then runs the compiled bin/main.ts. A shell reads the line above, which means
// nothing to Node, and starts Node with one helper thread for the garbage collector and the compiler instead of four, without
// shrinking the heap when idle or allocating objects as old from the start (docs/operators/load.md, "How Node is started").
import cluster from 'node:cluster'
import { buildIfNeeded } from './build-if-needed.js'

if (cluster.isPrimary) buildIfNeeded() // a worker runs the same build as its parent, whatever the sources are by now
const { main } = await import('../dist/bin/main.js').catch(endUninstalled)
await main(process.argv)

/** A package is missing: another Node or another version of survey-auth was here when npm installed them. */
function endUninstalled(error) {
  if (!error.code?.endsWith('MODULE_NOT_FOUND')) throw error // ERR_ or not, as it was imported or required
  const [what] = error.message.split('\n')
  process.stderr.write(
    `survey-auth: ${what}\nrun npm ci with this Node, ${process.version}; where npm finds no binary of a package it compiles one, which needs Python, make and a C++ compiler\n`,
  )
  process.exit(1)
}
