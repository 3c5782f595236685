#!/usr/bin/env node
// The command `survey-auth`: compiles if needed, then runs bin/main.ts as compiled.
import { buildIfNeeded } from './build-if-needed.js'

buildIfNeeded()
const { main } = await import('../dist/bin/main.js')
await main(process.argv)
