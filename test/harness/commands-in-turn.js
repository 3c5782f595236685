// A process that runs commands one after the other, each as if in a process of its own: nine tenths of a command's time
// goes into loading modules, which happens here once. Started by command-host.ts.
import { Readable } from 'node:stream'
import { main } from '../../dist/bin/main.js'

/** A command that has nothing more to do lets its process end; one that does not is a defect. */
const ENDS_WITHIN_MS = 5_000

const emitters = [process, process.stdout, process.stderr]
process.on('message', run)
const ownListeners = new Set(allListeners().map(({ listener }) => listener))

async function run({ args, env, cwd, input, end }) {
  for (const name of Object.keys(process.env)) delete process.env[name]
  Object.assign(process.env, env)
  process.chdir(cwd)
  process.umask(0o022)
  process.exitCode = undefined
  Object.defineProperty(process, 'stdin', { value: Readable.from([Buffer.from(input, 'base64')]), configurable: true })
  const before = process.getActiveResourcesInfo().length
  await main([process.execPath, 'survey-auth', ...args])
  const left = await leftOver(before)
  const exitCode = process.exitCode ?? 0
  leaveNothing(exitCode)
  await Promise.all([process.stdout, process.stderr].map((stream) => new Promise((done) => stream.write(end, done))))
  process.send({ exitCode, left })
}

/** Resources that would keep this process from ending. */
async function leftOver(before) {
  const deadline = performance.now() + ENDS_WITHIN_MS
  while (process.getActiveResourcesInfo().length > before) {
    if (performance.now() > deadline) return process.getActiveResourcesInfo()
    await new Promise((resolve) => setTimeout(resolve, 1))
  }
  return []
}

/** Runs and removes the command's listeners, as at the end of a process. */
function leaveNothing(exitCode) {
  for (const { emitter, event, listener } of allListeners()) {
    if (ownListeners.has(listener)) continue
    emitter.off(event, listener)
    if (emitter === process && event === 'exit') listener.call(process, exitCode)
  }
}

function allListeners() {
  return emitters.flatMap((emitter) =>
    emitter.eventNames().flatMap((event) => emitter.listeners(event).map((listener) => ({ emitter, event, listener }))),
  )
}
