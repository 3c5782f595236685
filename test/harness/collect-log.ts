import { Writable } from 'node:stream'

/** A stream for a process's log, and what has been written to it so far. */
export function collectLog(): { readonly logStream: Writable; readonly lines: readonly string[] } {
  const lines: string[] = []
  const logStream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString('utf8'))
      done()
    },
  })
  return { logStream, lines }
}
