// Writes a POSIX ustar archive: the one file that holds a backup, readable by any tar.
import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs'

const BLOCK = 512
const CHUNK = 1024 * 1024
const MAX_OCTAL_SIZE = 0o77777777777 // 8 GiB - 1, all that eleven octal digits hold

export interface Entry {
  /** Name in the archive, at most 100 ASCII characters. */
  readonly name: string
  /** What it holds; nothing if undefined. */
  readonly file?: string
}

/** Writes the entries, owner-readable only, to an open file. */
export function writeTar(descriptor: number, entries: readonly Entry[], modifiedAtMs: number): void {
  for (const { name, file } of entries) {
    if (file === undefined) writeAll(descriptor, header(name, 0, modifiedAtMs))
    else writeFile(descriptor, { name, file }, modifiedAtMs)
  }
  writeAll(descriptor, Buffer.alloc(2 * BLOCK)) // the end of an archive
}

function writeFile(descriptor: number, { name, file }: Required<Entry>, modifiedAtMs: number): void {
  const source = openSync(file, 'r')
  try {
    const { size } = fstatSync(source)
    writeAll(descriptor, header(name, size, modifiedAtMs))
    copy(source, descriptor, size)
    writeAll(descriptor, Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK))
  } finally {
    closeSync(source)
  }
}

function header(name: string, size: number, modifiedAtMs: number): Buffer {
  const block = Buffer.alloc(BLOCK)
  block.write(name, 0, 100, 'ascii')
  block.write('0000600\0', 100) // mode
  block.write('0000000\0', 108) // uid
  block.write('0000000\0', 116) // gid
  writeSize(block, size)
  block.write(`${octal(Math.floor(modifiedAtMs / 1000), 11)}\0`, 136)
  block.write('        ', 148) // the checksum field counts as spaces in the checksum
  block.write('0', 156) // a regular file
  block.write('ustar\x0000', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${octal(sum, 6)}\0 `, 148)
  return block
}

/** Octal; past 8 GiB in base 256, which GNU, BSD and busybox tar read. */
function writeSize(block: Buffer, size: number): void {
  if (size <= MAX_OCTAL_SIZE) {
    block.write(`${octal(size, 11)}\0`, 124)
    return
  }
  block[124] = 0x80
  block.writeBigUInt64BE(BigInt(size), 128)
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, '0')
}

function copy(source: number, target: number, size: number): void {
  const chunk = Buffer.alloc(Math.min(CHUNK, size))
  let left = size
  while (left > 0) {
    const read = readSync(source, chunk, 0, Math.min(chunk.length, left), null)
    if (read === 0) throw new Error('a snapshot ended before its size')
    writeAll(target, chunk.subarray(0, read))
    left -= read
  }
}

function writeAll(descriptor: number, bytes: Buffer): void {
  let written = 0
  while (written < bytes.length) written += writeSync(descriptor, bytes, written)
}
