// Throw-away certificates for tests, made with the openssl command.
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
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
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-ca-'))
  const file = (name: string) => path.join(folder, name)
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
  const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
  openssl('req', '-x509', ...ec, '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', '-subj', '/CN=test authority')
  let serial = 0
  return {
    cert: readFileSync(file('ca.pem'), 'utf8'),
    issue(subjectAltName, days = 1) {
      serial += 1
      const name = `leaf${serial}`
      writeFileSync(file(`${name}.ext`), `subjectAltName=${subjectAltName}\n`)
      openssl('req', ...ec, '-keyout', `${name}.key`, '-out', `${name}.csr`, '-subj', '/CN=leaf')
      if (days > 0) {
        const files = ['-in', `${name}.csr`, '-out', `${name}.pem`, '-CA', 'ca.pem', '-CAkey', 'ca.key']
        openssl(
          'x509',
          '-req',
          ...files,
          '-extfile',
          `${name}.ext`,
          '-set_serial',
          String(serial),
          '-days',
          String(days),
        )
      } else expired(name, serial)
      return { cert: readFileSync(file(`${name}.pem`), 'utf8'), key: readFileSync(file(`${name}.key`), 'utf8') }
    },
  }

  /** `openssl x509` learnt to set dates only lately; `openssl ca` always could. */
  function expired(name: string, number: number): void {
    writeFileSync(file('index.txt'), '')
    writeFileSync(file('serial'), number.toString(16).padStart(4, '0'))
    const config = `[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n`
    writeFileSync(file('ca.cnf'), config)
    const dates = ['-startdate', '20200101000000Z', '-enddate', '20200102000000Z']
    const files = ['-in', `${name}.csr`, '-out', `${name}.pem`, '-cert', 'ca.pem', '-keyfile', 'ca.key']
    openssl('ca', '-batch', '-notext', '-config', 'ca.cnf', '-extfile', `${name}.ext`, ...files, ...dates)
  }
}

/** Writes into `folder` what is given of a process's TLS; the variables that name the files, also of what is not there. */
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
