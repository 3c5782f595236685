#!/bin/sh
':' //; exec node --v8-pool-size=1 --min-semi-space-size=16 --no-memory-reducer --no-allocation-site-pretenuring "$0" "$@"
// The command `survey-auth`: compiles if needed, then runs bin/main.ts as compiled. A shell reads the line above and starts
// Node, to which it says nothing: with one thread that helps the collector and the compiler instead of four, without making
// memory small when there is little to do or objects old from their start (docs/operations.md, "How Node is started").
import cluster from 'node:cluster'
import { buildIfNeeded } from './build-if-needed.js'

if (cluster.isPrimary) buildIfNeeded() // a worker is of the program that its parent runs, whatever the sources are by now
const { main } = await import('../dist/bin/main.js')
await main(process.argv)
