// `npm run test:power-cut`: records what a writer does to its files, cuts the power at random moments, and opens what the
// disk may then hold. Nothing acknowledged may be missing and nothing half done, even when a flush fails now and then. With
// synchronous=NORMAL alone something must be lost, or this test proves nothing. Needs strace.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { loadavg, tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildIfNeeded } from '../../bin/build-if-needed.js'
import { scriptOptions } from '../harness/script-options.js'
import { Disk, FLUSH_FAILED, readTrace, straceArgs } from './disk.js'
import { halves, Steps } from './power-cut-steps.js'

const WRITER = fileURLToPath(new URL('power-cut-writer.js', import.meta.url))
const SERVICES = new URL('../../dist/services/', import.meta.url)
/** Images need not be on a disk. */
const IMAGES = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

const options = scriptOptions('npm run test:power-cut', {
  commits: [5_000, 'in all'],
  round: [250, 'commits of one round'],
  images: [8, 'states of the disk per commit'],
  seed: [Date.now() % 2 ** 31, 'of the cuts; a new one unless given'],
})

buildIfNeeded()
const { Database } = await import(new URL('storage/sqlite/driver.js', SERVICES).href)
const { openSqliteTokenStore } = await import(new URL('token/store/sqlite/sqlite-token-store.js', SERVICES).href)
const random = mulberry32(options.seed)
const work = mkdtempSync(path.join(tmpdir(), 'survey-auth-power-'))
const images = mkdtempSync(path.join(IMAGES, 'survey-auth-images-'))
try {
  process.exitCode = await main()
} finally {
  for (const directory of [work, images]) rmSync(directory, { recursive: true, force: true })
}

async function main() {
  const startedAt = performance.now()
  const product = await rounds('product', options.commits)
  const failing = await rounds('failing', Math.ceil(options.commits / 4))
  const never = await rounds('never', Math.min(options.round, options.commits))
  say(`seed ${options.seed}, ${Math.round((performance.now() - startedAt) / 1000)} s, load ${loadavg()[0]?.toFixed(1)}`)
  const lines = { 'as the product flushes': product, 'flushes fail': failing, 'synchronous=NORMAL alone': never }
  for (const [name, { commits, images: opened, acknowledgements, failures }] of Object.entries(lines)) {
    say(
      `${name}: ${commits} commits, ${opened} images, ${acknowledgements} acknowledgements ` +
        `compared, ${failures.length} images with a loss`,
    )
  }
  say(`${product.copied} pages were copied into the database by the thread of its checkpoints, beside the commits`)
  say(`${failing.failedFlushes} flushes failed`)
  for (const failure of [...product.failures, ...failing.failures].slice(0, 10)) say(`VIOLATION: ${failure}`)
  if (never.failures.length === 0) say('BLIND: synchronous=NORMAL lost nothing, so this test would see nothing')
  else say(`the control lost, for example: ${never.failures[0]}`)
  const hasSeen = product.acknowledgements > 0 && product.copied > 0 && failing.failedFlushes > 0
  const hasLost = product.failures.length > 0 || failing.failures.length > 0
  const isProved = !hasLost && never.failures.length > 0 && hasSeen
  say(isProved ? 'nothing acknowledged was lost' : 'FAILED')
  return isProved ? 0 : 1
}

/** Rounds of writers that flush in this way, until `commits` are made. */
async function rounds(way, commits) {
  const counts = { commits: 0, images: 0, acknowledgements: 0, copied: 0, failedFlushes: 0, failures: [] }
  while (counts.commits < commits) await round(way, Math.min(options.round, commits - counts.commits), counts)
  return counts
}

/** One writer, recorded, and its images. */
async function round(way, commits, into) {
  const directory = mkdtempSync(path.join(work, 'round-'))
  const file = path.join(directory, 'token.db')
  const trace = path.join(work, 'trace')
  const args = [...straceArgs(trace), process.execPath, WRITER, file, String(commits), way]
  const { status, signal, stderr } = spawnSync('strace', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  if (status !== null && status !== 0 && signal !== 'SIGKILL' && status !== 137) {
    throw new Error(`the writer ended with ${status}: ${stderr}`)
  }
  const events = await readTrace(trace, directory)
  rmSync(trace)
  rmSync(directory, { recursive: true })
  const lines = events.filter(({ kind }) => kind === 'say')
  const failedFlushes = lines.filter(({ text }) => text === FLUSH_FAILED).length
  const said = lines.length - failedFlushes - 1 // the first tells that it is ready
  if (said < commits) throw new Error(`the recording is not whole: ${said} of ${commits} commits`)
  const perCommit = way === 'never' ? 1 : options.images // the control loses something nearly every time
  const moments = Array.from({ length: commits * perCommit }, () => Math.ceil(random() * events.length))
  const disk = new Disk(events, random)
  const acknowledged = []
  let seen = 0
  for (const moment of moments.sort((a, b) => a - b)) {
    disk.advanceTo(moment)
    for (; seen < moment; seen += 1) if (isAcknowledgement(events[seen])) acknowledged.push(events[seen].text)
    const image = path.join(images, 'image')
    disk.writeImage(image)
    const problems = await problemsOf(path.join(image, 'token.db'), acknowledged)
    rmSync(image, { recursive: true })
    into.images += 1
    into.acknowledgements += acknowledged.length
    if (problems.length > 0)
      into.failures.push(`event ${moment} of ${events.length}: ${problems.slice(0, 3).join('; ')}`)
  }
  into.commits += commits
  into.copied += copiedBeside(events)
  into.failedFlushes += failedFlushes
  if (into.commits % 1000 === 0) say(`${into.commits} commits, ${into.images} images`)
}

function isAcknowledgement({ kind, text }) {
  return kind === 'say' && text !== FLUSH_FAILED
}

/** Counts writes to the database by threads other than the one that commits. */
function copiedBeside(events) {
  const { inode } = events.find(({ kind, name }) => kind === 'create' && name === 'token.db')
  const writes = events.filter(({ kind }) => kind === 'write')
  return writes.filter((write) => write.inode === inode && write.thread !== writes[0].thread).length
}

async function problemsOf(file, acknowledged) {
  try {
    const store = openSqliteTokenStore({ file })
    try {
      const missing = await new Steps(store).missing(acknowledged)
      return [...missing.map((line) => `lost: ${line}`), ...wrongsOf(file, acknowledged)]
    } finally {
      await store.close()
    }
  } catch (error) {
    return [`cannot be opened: ${error.message}`]
  }
}

function wrongsOf(file, acknowledged) {
  const db = new Database(file)
  try {
    const answer = db.pragma('integrity_check', { simple: true })
    return [...(answer === 'ok' ? [] : [`integrity_check: ${answer}`]), ...halves(db, acknowledged)]
  } finally {
    db.close()
  }
}

/** A small seeded random generator. */
function mulberry32(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}

function say(line) {
  process.stdout.write(`${line}\n`)
}
