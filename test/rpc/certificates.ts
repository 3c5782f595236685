// Throw-away certificates for tests, made with the openssl command.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { TlsMaterial } from '../../services/rpc/listener.js'

export interface Authority {
  /** PEM of the certificate that signs. */
  readonly cert: string
  /** A certificate for a name such as `DNS:gateway.test` (more, separated by commas), valid for `days`; 0: expired. */
  issue(subjectAltName: string, days?: number): { cert: string; key: string }
}

export function createAuthority(): Authority {
  const made = inFolder({}, ({ openssl, read }) => {
    openssl('req', '-x509', ...EC, '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', '-subj', '/CN=test authority')
    return { 'ca.key': read('ca.key'), 'ca.pem': read('ca.pem') }
  })
  let serial = 0
  return {
    cert: made['ca.pem'],
    issue(subjectAltName, days = 1) {
      serial += 1
      return inFolder({ ...made, 'leaf.ext': `subjectAltName=${subjectAltName}\n` }, (folder) => {
        folder.openssl('req', ...EC, '-keyout', 'leaf.key', '-out', 'leaf.csr', '-subj', '/CN=leaf')
        if (days > 0) sign(folder, serial, days)
        else signExpired(folder, serial)
        return { cert: folder.read('leaf.pem'), key: folder.read('leaf.key') }
      })
    },
  }
}

const EC = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
const LEAF = ['-in', 'leaf.csr', '-out', 'leaf.pem', '-extfile', 'leaf.ext']

interface Folder {
  openssl(...args: readonly string[]): void
  read(name: string): string
  write(name: string, text: string): void
}

/** Runs `work` in a folder with these files, and removes the folder afterwards. */
function inFolder<T>(files: Readonly<Record<string, string>>, work: (folder: Folder) => T): T {
  const cwd = mkdtempSync(path.join(tmpdir(), 'survey-auth-ca-'))
  const folder: Folder = {
    openssl: (...args) => void execFileSync('openssl', args, { cwd, stdio: 'pipe' }),
    read: (name) => readFileSync(path.join(cwd, name), 'utf8'),
    write: (name, text) => writeFileSync(path.join(cwd, name), text),
  }
  try {
    for (const [name, text] of Object.entries(files)) folder.write(name, text)
    return work(folder)
  } finally {
    rmSync(cwd, { recursive: true })
  }
}

function sign({ openssl }: Folder, serial: number, days: number): void {
  const by = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-set_serial', String(serial), '-days', String(days)]
  openssl('x509', '-req', ...LEAF, ...by)
}

/** With `openssl ca`, because only recent versions of `openssl x509` can set dates. */
function signExpired({ openssl, write }: Folder, serial: number): void {
  write('index.txt', '')
  write('serial', serial.toString(16).padStart(4, '0'))
  write(
    'ca.cnf',
    '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n',
  )
  const by = ['-cert', 'ca.pem', '-keyfile', 'ca.key', '-startdate', '20200101000000Z', '-enddate', '20200102000000Z']
  openssl('ca', '-batch', '-notext', '-config', 'ca.cnf', ...LEAF, ...by)
}

/** Writes the given PEM files into `folder`; returns the variables that name all files, missing ones included. */
export function pemFiles(folder: string, material: { readonly [part in keyof TlsMaterial]?: string | undefined }) {
  const named = Object.entries(material).map(([part, pem]) => {
    const file = path.join(folder, part)
    if (pem !== undefined) writeFileSync(file, pem, { mode: 0o600 })
    return [`RPC_TLS_${part.toUpperCase()}`, file] as const
  })
  return Object.fromEntries(named)
}

/** What a process needs: its own certificate, and the authority it trusts. */
export function materialOf(authority: Authority, leaf: { cert: string; key: string }): TlsMaterial {
  return { ...leaf, ca: authority.cert }
}
