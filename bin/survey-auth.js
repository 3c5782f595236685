#!/usr/bin/env sh
':' //; PATH="${0%/*}:$PATH"; exec node --v8-pool-size=1 --min-semi-space-size=16 --no-memory-reducer --no-allocation-site-pretenuring "$0" "$@"
// The command `survey-auth`: compiles if needed, then runs the compiled bin/main.ts. A shell reads the line above, which means
// nothing to Node, and starts Node, the one beside this file where a release brought one, with one helper thread for the
// garbage collector and the compiler instead of four, without shrinking the heap when idle or allocating objects as old from
// the start (docs/operators/load.md, "How Node is started").
import { buildIfNeeded } from './build-if-needed.js'

buildIfNeeded()
const { main } = await import('../dist/bin/main.js').catch(endUnloaded)
await main(process.argv)

function endUnloaded(error) {
  if (error.code === 'EMFILE')
    end(69, 'survey-auth: file descriptors ran out\nraise the limit: ulimit -n 1024, or more\n')
  endUninstalled(error)
}

/** A package is missing: another Node or another version of survey-auth was here when npm installed them. */
function endUninstalled(error) {
  if (!error.code?.endsWith('MODULE_NOT_FOUND')) throw error // ERR_ or not, as it was imported or required
  const [what] = error.message.split('\n')
  end(
    1,
    `survey-auth: ${what}\nrun npm ci with this Node, ${process.version}; where npm finds no binary of a package it compiles one, which needs Python, make and a C++ compiler\n`,
  )
}

function end(exitCode, text) {
  process.stderr.write(text)
  process.exit(exitCode)
}
