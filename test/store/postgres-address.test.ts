import { describe, expect, test } from 'vitest'
import { parseAddress } from '../../services/storage/postgres/address.js'

describe('a PostgreSQL address', () => {
  test.each([
    ['postgres://u:p@h/db', ['postgres://u:p@h:5432/db']],
    ['postgresql://h:6000/db', ['postgres://h:6000/db']],
    ['postgres://u:p%40@h1:5432,h2:5433/db', ['postgres://u:p%40@h1:5432/db', 'postgres://u:p%40@h2:5433/db']],
    ['postgres://[::1]:5432,[::2]/db', ['postgres://[::1]:5432/db', 'postgres://[::2]:5432/db']],
    ['postgres://h1,h2/db?target_session_attrs=read-write', ['postgres://h1:5432/db', 'postgres://h2:5432/db']],
    ['postgres://h1,h2/db?target_session_attrs=primary', ['postgres://h1:5432/db', 'postgres://h2:5432/db']],
    ['postgres://h/db?target_session_attrs=any', ['postgres://h:5432/db']],
    ['postgres://h/db?sslmode=verify-full', ['postgres://h:5432/db?sslmode=verify-full']],
    ['postgres://h1:1,h2:65535/db', ['postgres://h1:1/db', 'postgres://h2:65535/db']],
  ])('%s names its hosts', (url, each) => {
    const address = parseAddress(url)
    expect(address.hosts.map((host) => address.urlOf(host))).toEqual(each)
  })

  test.each<[string, 'none' | 'unverified' | 'verified']>([
    ['', 'none'],
    ['?sslmode=disable', 'none'],
    ['?ssl=0', 'none'],
    ['?sslmode=disable&sslrootcert=ca.pem', 'none'],
    ['?sslmode=no-verify', 'unverified'],
    ['?ssl=no-verify', 'unverified'],
    ['?sslmode=require&uselibpqcompat=true', 'unverified'],
    ['?sslmode=verify-ca&sslrootcert=ca.pem&uselibpqcompat=true', 'unverified'],
    ['?sslmode=verify-full&uselibpqcompat=true', 'verified'],
    ['?sslmode=require', 'verified'],
    ['?sslmode=verify-full&sslrootcert=ca.pem', 'verified'],
    ['?sslrootcert=ca.pem', 'verified'],
    ['?ssl=true', 'verified'],
  ])('with %s, TLS is %s', (query, tls) => {
    expect(parseAddress(`postgres://h/db${query}`).tls).toBe(tls)
  })

  test.each([
    'mysql://h/db',
    'postgres://u:hunter2@h',
    'postgres://u:hunter2@/db',
    'postgres://u:hunter2@h:0/db',
    'postgres://u:hunter2@h:65536/db',
    'postgres://u:hunter2@h1,,h2/db',
    'postgres://u:hunter2@h/db?target_session_attrs=standby',
  ])('%s is refused, without its password', (url) => {
    expect(() => parseAddress(url)).toThrow(/^(?!.*hunter2).*PostgreSQL address/)
  })
})
