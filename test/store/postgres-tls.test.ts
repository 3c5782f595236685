// A server that wants TLS, and a certificate of whoever connects, as docs/operators/postgres.md shows it.
import { chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { openDatabase } from '../../services/storage/postgres/open.js'
import { closing } from '../postgres/closing.js'
import { Cluster } from '../postgres/cluster.js'
import { createAuthority } from '../rpc/certificates.js'

const NOBODY = 65_534

/** The names of files with these texts, which the server may read. */
function filesOf(texts: Readonly<Record<string, string>>): Record<string, string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-tls-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const files = Object.entries(texts).map(([name, text]) => {
    const file = path.join(folder, name)
    writeFileSync(file, text, { mode: 0o600 })
    return [name, file]
  })
  if (process.getuid?.() === 0) for (const [, file] of [['', folder], ...files]) chownSync(file ?? '', NOBODY, NOBODY)
  return Object.fromEntries(files)
}

test('verify-full takes a server with a certificate of the CA for its name, and no other', async () => {
  const [authority, another] = [createAuthority(), createAuthority()]
  const [server, client] = [authority.issue('IP:127.0.0.1'), authority.issue('DNS:survey-auth')]
  const files = filesOf({
    'ca.pem': authority.cert,
    'another.pem': another.cert,
    'server.pem': server.cert,
    'server.key': server.key,
    'client.pem': client.cert,
    'client.key': client.key,
    'hba.conf': 'host all all all trust\n',
  })
  const settings = {
    ssl: 'on',
    ssl_ca_file: files['ca.pem'] ?? '',
    ssl_cert_file: files['server.pem'] ?? '',
    ssl_key_file: files['server.key'] ?? '',
    hba_file: files['hba.conf'] ?? '',
  }
  const cluster = await Cluster.create(settings)
  onTestFinished(() => cluster.destroy())
  const url = await cluster.createDatabase()
  const open = async (host: string, parameters: Readonly<Record<string, string | undefined>>) => {
    const query = new URLSearchParams(parameters as Record<string, string>)
    const address = url.replace('127.0.0.1', host)
    const database = closing(await openDatabase({ url: `${address}?${query}` }, { name: 'nothing', migrations: [] }))
    const text = 'SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()'
    return database.read({ name: 'tls', text }, [])
  }
  const sslmode = 'verify-full'
  const sslrootcert = files['ca.pem']
  const known = { sslcert: files['client.pem'], sslkey: files['client.key'] }
  expect(await open('127.0.0.1', { sslmode, sslrootcert })).toEqual([{ ssl: true, client_dn: null }])
  expect(await open('127.0.0.1', { sslmode, sslrootcert, ...known })).toEqual([{ ssl: true, client_dn: '/CN=leaf' }])
  expect(await open('127.0.0.1', { sslmode: 'no-verify' })).toEqual([{ ssl: true, client_dn: null }])
  const unavailable = { name: 'StoreUnavailable' }
  await expect(open('127.0.0.1', { sslmode, sslrootcert: files['another.pem'] })).rejects.toMatchObject(unavailable)
  await expect(open('127.0.0.1', { sslmode })).rejects.toMatchObject(unavailable)
  await expect(open('localhost', { sslmode, sslrootcert })).rejects.toMatchObject(unavailable)
}, 120_000)
