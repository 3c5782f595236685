// What a process did to its files, read from strace, and the states a power cut may leave of it.
//
// The model: everything written to a file before its last fsync is there. Of each later write every sector of 512 bytes is
// there or not, each later change of size happened or not, in any order. A name is there once its directory was flushed;
// before that it may or may not be. After a failed flush, each write it should have flushed may or may not be there: the
// kernel counts its pages as clean, so no later flush writes them. The kernel reports the error to others that flush the
// file, too, which a simulated failure cannot do: a failure that is followed by such a flush does not count.
import { createReadStream, mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'

const SECTOR = 512

/** Printed by a process whose log could not be flushed. */
export const FLUSH_FAILED = 'flush failed'

/** Arguments of strace that record what `readTrace` reads: all threads, data in full. */
export function straceArgs(output) {
  const calls = 'openat,close,pwrite64,write,ftruncate,fallocate,fsync,fdatasync,rename,unlink,unlinkat'
  return ['-f', '-o', output, '-xx', '-s', '1000000', '-e', `trace=${calls}`]
}

/**
 * The events of one directory in order: create, unlink, write, resize, sync, syncDirectory, say (a line to stdout).
 * Calls of several threads may overlap. A change is placed where its call began, since it may reach the disk from then on,
 * with `doneAt` and its `thread`; a flush is placed where its call ended, with `begunAt`, and covers changes done before that.
 * Moments are lines of the recording.
 */
export async function readTrace(file, directory) {
  const recording = new Recording(directory)
  const unfinished = new Map()
  let moment = 0
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY })) {
    moment += 1
    const [, thread, text] = /^(\d+)\s+(.*)$/.exec(line) ?? []
    if (text === undefined) continue
    const begun = /^(\w+\(.*) <unfinished \.\.\.>$/.exec(text)?.[1]
    const resumed = /^<\.\.\. \w+ resumed>(.*)$/.exec(text)?.[1]
    if (begun !== undefined) {
      unfinished.set(thread, { begun, begunAt: moment, changes: recording.begin(begun, thread) })
    } else if (resumed !== undefined) {
      const { begun, begunAt, changes } = unfinished.get(thread)
      unfinished.delete(thread)
      recording.end(begun + resumed, { thread, begunAt, endedAt: moment }, changes)
    } else {
      recording.end(text, { thread, begunAt: moment, endedAt: moment }, undefined)
    }
  }
  return recording.events
}

class Recording {
  events = []
  #directory
  #open = new Map([[1, { path: 'stdout' }]])
  #inodes = new Map()
  #made = 0

  constructor(directory) {
    this.#directory = directory
  }

  /** Changes of a file whose call has begun, recorded; undefined for every other call. */
  begin(text, thread) {
    return this.#change(parseCall(text), thread)
  }

  #change({ name, args }, thread) {
    const at = this.#open.get(Number.parseInt(args, 10))
    if (at?.inode === undefined || !(name in changes)) return undefined
    const begun = changes[name](args, at.inode).map((change) => ({ ...change, thread }))
    this.events.push(...begun)
    return begun
  }

  /** `begun`: what `begin` recorded of this call, if other calls were recorded in between. */
  end(text, when, begun) {
    const call = parseCall(text)
    const { name, args, result } = call
    if (result === undefined || result < 0) return
    const at = this.#open.get(Number.parseInt(args, 10))
    if (name === 'openat') this.#opened(path.resolve(stringOf(args)), result)
    else if (name === 'unlink' || name === 'unlinkat') this.#unlinked(path.resolve(stringOf(args)))
    else if (name === 'rename') throw new Error('a file of the database was renamed: teach this script what that means')
    else if (name === 'close') this.#open.delete(Number.parseInt(args, 10))
    else if (at?.path === 'stdout') this.#said(name, args)
    else if (at) this.#changed(at, name, when, begun ?? this.#change(call, when.thread))
  }

  #opened(target, descriptor) {
    this.#open.delete(descriptor)
    if (target !== this.#directory && path.dirname(target) !== this.#directory) return
    if (target !== this.#directory && !this.#inodes.has(target)) {
      this.#made += 1
      this.#inodes.set(target, this.#made)
      this.events.push({ kind: 'create', name: path.basename(target), inode: this.#made })
    }
    this.#open.set(descriptor, { path: target, inode: this.#inodes.get(target) })
  }

  #unlinked(target) {
    if (this.#inodes.delete(target)) this.events.push({ kind: 'unlink', name: path.basename(target) })
  }

  #said(name, args) {
    if (name !== 'write') return
    for (const text of stringOf(args).trim().split('\n')) this.events.push({ kind: 'say', text })
  }

  #changed({ path: target, inode }, name, { begunAt, endedAt }, begun) {
    const isSync = name === 'fsync' || name === 'fdatasync'
    if (target === this.#directory) {
      if (isSync) this.events.push({ kind: 'syncDirectory' })
    } else if (isSync) {
      this.events.push({ kind: 'sync', inode, begunAt })
    } else if (begun) {
      for (const change of begun) change.doneAt = endedAt
    } else {
      throw new Error(`${name} on a file of the database: teach this script what that means`)
    }
  }
}

function parseCall(text) {
  const [, name = '', args = '', result] = /^(\w+)\((.*?)(?:\)\s+= (-?\d+).*)?$/.exec(text) ?? []
  return { name, args, result: result === undefined ? undefined : Number(result) }
}

/** The changes a call makes to a file. */
const changes = {
  pwrite64: (args, inode) => [{ kind: 'write', inode, offset: lastOf(args), data: bytesOf(args) }],
  ftruncate: (args, inode) => [{ kind: 'resize', inode, size: lastOf(args) }],
}

function lastOf(args) {
  return Number(args.slice(args.lastIndexOf(',') + 1))
}

function stringOf(args) {
  return String(bytesOf(args))
}

/** The first string among the arguments. */
function bytesOf(args) {
  if (args.includes('"...')) throw new Error('a call wrote more than the recording holds of one')
  const hex = /"((?:\\x[0-9a-f]{2})*)"/.exec(args)?.[1] ?? ''
  return Buffer.from(hex.replaceAll('\\x', ''), 'hex')
}

/**
 * States of the disk after the events before a moment. Moments must ascend, since flushed changes stay applied.
 * `random`: from 0 to below 1.
 */
export class Disk {
  #events
  #random
  #next = 0
  #names = new Map()
  #pendingNames = []
  #files = new Map()
  #log

  constructor(events, random) {
    this.#events = events
    this.#random = random
  }

  advanceTo(moment) {
    for (; this.#next < moment; this.#next += 1) this.#take(this.#events[this.#next])
  }

  #take(event) {
    const { kind, inode } = event
    if (kind === 'create') this.#files.set(inode, { flushed: new Growing(), pending: [] })
    if (kind === 'create' && event.name.endsWith('-wal')) this.#log = this.#files.get(inode)
    if (kind === 'create' || kind === 'unlink') this.#pendingNames.push(event)
    else if (kind === 'syncDirectory') {
      for (const change of this.#pendingNames) rename(this.#names, change)
      this.#pendingNames = []
    } else if (kind === 'write' || kind === 'resize') this.#files.get(inode).pending.push(event)
    else if (kind === 'sync') {
      const file = this.#files.get(inode)
      const isFlushed = ({ doneAt }) => doneAt < event.begunAt
      for (const change of file.pending.filter(isFlushed)) file.flushed.apply(change)
      file.pending = file.pending.filter((change) => !isFlushed(change))
    } else if (kind === 'say' && event.text === FLUSH_FAILED && !this.#isFlushedByAnother()) {
      this.#applySomeOf(this.#log.pending.splice(0), this.#log.flushed)
    }
  }

  /** Whether another flush of the log, which would have failed too, comes before the log is rewritten from its beginning. */
  #isFlushedByAnother() {
    const ofLog = ({ kind, inode, offset }) =>
      this.#files.get(inode) === this.#log && (kind === 'sync' || (kind === 'write' && offset === 0))
    const next = this.#events.slice(this.#next + 1).find(ofLog)
    return next?.kind === 'sync'
  }

  /** Writes one of the possible states into a new directory. */
  writeImage(directory) {
    mkdirSync(directory)
    const names = new Map(this.#names)
    for (const change of this.#pendingNames) if (this.#random() < 0.5) rename(names, change)
    for (const [name, inode] of names) {
      const { flushed, pending } = this.#files.get(inode)
      const content = flushed.copy()
      this.#applySomeOf(pending, content)
      writeFileSync(path.join(directory, name), content.bytes())
    }
  }

  #applySomeOf(changes, content) {
    const luck = this.#random() // from "nothing of it" to "all of it", and everything between
    for (const change of changes) this.#applySome(content, change, luck)
  }

  #applySome(content, change, luck) {
    if (this.#random() < luck * luck) return content.apply(change)
    if (change.kind === 'resize' || this.#random() > luck) return
    for (let at = 0; at < change.data.length; ) {
      const end = Math.min(change.data.length, at + SECTOR - ((change.offset + at) % SECTOR))
      if (this.#random() < 0.5)
        content.apply({ ...change, offset: change.offset + at, data: change.data.subarray(at, end) })
      at = end
    }
  }
}

function rename(names, { kind, name, inode }) {
  if (kind === 'create') names.set(name, inode)
  else names.delete(name)
}

/** Bytes of a file that grows in large steps. */
class Growing {
  #buffer
  #size

  constructor(buffer = Buffer.alloc(65_536), size = 0) {
    this.#buffer = buffer
    this.#size = size
  }

  apply({ kind, offset, data, size }) {
    if (kind === 'resize') {
      this.#reserve(size)
      if (size < this.#size) this.#buffer.fill(0, size, this.#size)
      this.#size = size
      return
    }
    this.#reserve(offset + data.length)
    data.copy(this.#buffer, offset)
    this.#size = Math.max(this.#size, offset + data.length)
  }

  copy() {
    return new Growing(Buffer.from(this.#buffer), this.#size)
  }

  bytes() {
    return this.#buffer.subarray(0, this.#size)
  }

  #reserve(size) {
    if (size <= this.#buffer.length) return
    const larger = Buffer.alloc(Math.max(size, 2 * this.#buffer.length))
    this.#buffer.copy(larger, 0, 0, this.#size)
    this.#buffer = larger
  }
}
