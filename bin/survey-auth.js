#!/usr/bin/env node
// The command `survey-auth`: compiles if needed, then runs bin/main.ts as compiled.
import cluster from 'node:cluster'
import { buildIfNeeded } from './build-if-needed.js'

if (cluster.isPrimary) buildIfNeeded() // a worker is of the program that its parent runs, whatever the sources are by now
const { main } = await import('../dist/bin/main.js')
await main(process.argv)
