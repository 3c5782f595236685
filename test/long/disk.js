// What a process did to its files, read from strace, and the states a power cut may leave of it.
//
// The model: what a file was given before its last fsync is there. Of each later write every sector of 512 bytes is
// there or not, each later change of size happened or not, whatever the order. A name is there once its directory was
// flushed; before that it may or may not be.
import { createReadStream, mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'

const SECTOR = 512

/** Arguments of strace that record what `readTrace` reads: the main thread, data in full. */
export function straceArgs(output) {
  const calls = 'openat,close,pwrite64,write,ftruncate,fallocate,fsync,fdatasync,rename,unlink,unlinkat'
  return ['-o', output, '-xx', '-s', '1000000', '-e', `trace=${calls}`]
}

/** The events of one directory in order: create, unlink, write, resize, sync, syncDirectory, say (a line to stdout). */
export async function readTrace(file, directory) {
  const events = []
  const open = new Map([[1, { path: 'stdout' }]])
  const inodes = new Map()
  let made = 0
  for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Number.POSITIVE_INFINITY })) {
    const call = /^(\w+)\((.*)\)\s+= (-?\d+)/.exec(line)
    if (!call || Number(call[3]) < 0) continue
    const [, name, args, result] = call
    const at = open.get(Number.parseInt(args, 10))
    const strings = [...args.matchAll(/"((?:\\x[0-9a-f]{2})*)"/g)].map(([, hex]) => bytesOf(hex))
    if (name === 'openat') {
      const target = path.resolve(String(strings[0]))
      if (target !== directory && path.dirname(target) !== directory) {
        open.delete(Number(result))
        continue
      }
      if (target !== directory && !inodes.has(target)) {
        made += 1
        inodes.set(target, made)
        events.push({ kind: 'create', name: path.basename(target), inode: made })
      }
      open.set(Number(result), { path: target, inode: inodes.get(target) })
    } else if (name === 'unlink' || name === 'unlinkat') {
      const target = path.resolve(String(strings[0]))
      if (!inodes.delete(target)) continue
      events.push({ kind: 'unlink', name: path.basename(target) })
    } else if (name === 'rename') {
      throw new Error('a file of the database was renamed: teach this script what that means')
    } else if (name === 'close') {
      open.delete(Number.parseInt(args, 10))
    } else if (at?.path === 'stdout') {
      if (name === 'write') for (const text of String(strings[0]).trim().split('\n')) events.push({ kind: 'say', text })
    } else if (at?.path === directory) {
      if (name === 'fsync' || name === 'fdatasync') events.push({ kind: 'syncDirectory' })
    } else if (at) {
      events.push(...eventsOf(name, args, strings, at.inode))
    }
  }
  return events
}

function eventsOf(name, args, strings, inode) {
  const last = Number(args.slice(args.lastIndexOf(',') + 1))
  if (name === 'pwrite64') return [{ kind: 'write', inode, offset: last, data: strings[0] }]
  if (name === 'ftruncate') return [{ kind: 'resize', inode, size: last }]
  if (name === 'fsync' || name === 'fdatasync') return [{ kind: 'sync', inode }]
  throw new Error(`${name} on a file of the database: teach this script what that means`)
}

function bytesOf(hex) {
  return Buffer.from(hex.replaceAll('\\x', ''), 'hex')
}

/**
 * States of the disk after the events before a moment. Moments must ascend: what is flushed is kept applied.
 * `random`: from 0 to below 1.
 */
export class Disk {
  #events
  #random
  #next = 0
  #names = new Map()
  #pendingNames = []
  #files = new Map()

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
    if (kind === 'create' || kind === 'unlink') this.#pendingNames.push(event)
    else if (kind === 'syncDirectory') {
      for (const change of this.#pendingNames) rename(this.#names, change)
      this.#pendingNames = []
    } else if (kind === 'write' || kind === 'resize') this.#files.get(inode).pending.push(event)
    else if (kind === 'sync') {
      const file = this.#files.get(inode)
      for (const change of file.pending) file.flushed.apply(change)
      file.pending = []
    }
  }

  /** Writes one of the possible states into a new directory. */
  writeImage(directory) {
    mkdirSync(directory)
    const names = new Map(this.#names)
    for (const change of this.#pendingNames) if (this.#random() < 0.5) rename(names, change)
    for (const [name, inode] of names) {
      const { flushed, pending } = this.#files.get(inode)
      const content = flushed.copy()
      const luck = this.#random() // from "nothing of it" to "all of it", and everything between
      for (const change of pending) this.#applySome(content, change, luck)
      writeFileSync(path.join(directory, name), content.bytes())
    }
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
