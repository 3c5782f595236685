import { describe, expect, test } from 'vitest'
import { firebaseHash, toStoredHash } from '../../services/token/password/notations.js'
import { readStoredHash } from '../../services/token/password/stored-hash.js'
import { inThread } from '../../services/token/password/threads.js'

const PASSWORD = 'correct horse 电池'
const hash = (text: string) => inThread('argon2Hash', text, { memoryCost: 64, timeCost: 1, parallelism: 1 })
const stored = (text: string) => toStoredHash(text, hash)
const matches = async (text: string, password: string) => readStoredHash(await stored(text)).matches(password)

// Hashes of the password above. passlib, argon2-cffi, bcrypt and Django made theirs; those of Spring are made of Python's
// hashlib as Spring's documentation says.
const OF_OTHERS = [
  ['argon2i, argon2-cffi', '$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM0NTY3OA$e4mwcN3XSU/vLrTg9wjiNg'],
  ['argon2d, argon2-cffi', '$argon2d$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM0NTY3OA$ZS/he98y0MNTHxFqGX3YEg'],
  ['argon2id, argon2-cffi', '$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM0NTY3OA$RSwve6oT5sz2VwRScJa/Vw'],
  ['argon2 of version 16, argon2-cffi', '$argon2i$v=16$m=64,t=1,p=1$c29tZXNhbHQxMjM0NTY3OA$bNzpl1I/m/Ej5TW6HJ0OOg'],
  ['bcrypt 2a', '$2a$04$jhccdCFakWKkkMzXoAWv7uhAM6gXIgyauzOZZiRAFHLix1V4LnR1C'],
  ['bcrypt 2b', '$2b$04$6GVrok7/jOI1Fb52H6zc0O7ji/Hbpfp1HKL9LIPHJy7CfunNwaLHy'],
  ['bcrypt of PHP', '$2y$04$wW.gSPtlhQjS0salZPaU..w6nNlZDA9.GcgpKiDHhW6igRgHwsJR6'],
  ['passlib pbkdf2', '$pbkdf2$10$OEco5TxHaA0hxJhTai1lrA$NVW8MYREbdwg6vUNe/7YC.YlVOw'],
  ['passlib pbkdf2-sha256', '$pbkdf2-sha256$10$mXNOyXmPEQIgZOwdYyzFWA$JcZ6R2MDMVPtGtEOcFAdPgmaRVt9oyd0aS8HnnDUsMk'],
  [
    'passlib pbkdf2-sha512',
    '$pbkdf2-sha512$10$IGSMsfa.914rJQQAIGSsdQ$EfEH/xAMu5W6d5f0VWJmlpt73DiSH4YPcv3hJgOCt9UlItZDhXj8Uh01OALNiTmjfAduXSifcuzqHpY02qqZHw',
  ],
  ['passlib scrypt', '$scrypt$ln=4,r=8,p=1$8p7TGqN0znkvxTiHMEYohQ$qZ1NTh/A11c9uARXR621m+9o9jIVexmfvU0rErl/HJA'],
  ['PHC pbkdf2 with a length', '$pbkdf2-sha256$i=10,l=32$c2FsdHNhbHRzYWx0$v1mZu2lz8jE6tT7zrsr+uWNJRCROMytxqTgKvM/aTJ8'],
  ['LDAP SSHA', '{SSHA}wXfh4B6HlbKOBObRxx6tpjQ0c6Fzzjkn'],
  ['LDAP SHA', '{SHA}bmXAB12iribNgyaN7P0RPuGN5es='],
  ['LDAP MD5', '{MD5}VdL934uldou8RLCDhGz0OQ=='],
  ['LDAP SMD5', '{SMD5}WLc/znLwVKpNJPkta807TtRa6z0='],
  [
    'LDAP SSHA512',
    '{SSHA512}OMopU9tCrFVQBxtHMjnBWG+yWv6HWh0P+T+z5PQXzTze2UbYKnym0Bz/AtGMynBsyY4+zBQpZjLy6E0RMNb6EjEyMzQ1Njc4',
  ],
  ['LDAP SSHA256', '{SSHA256}qzwca+t9X+HZoK4Y6zSli7Jg2opb/hTvRCZz7hWYdxUxMjM0NTY3OA=='],
  ['LDAP CRYPT', '{CRYPT}$2b$04$KBO1kYii2muM/Y2tBJ4LeOe.IBlsLsCB99abED25yW6o09GgoUonu'],
  ['Django pbkdf2_sha256', 'pbkdf2_sha256$10$salt.of-Django$kHLFGZkfeQQukTZqciW9BfYBpnnPz1DIhN3weN7Jzjw='],
  ['Django pbkdf2_sha1', 'pbkdf2_sha1$10$salt.of-Django$17G+/kfrWxsehBJBKTCY/Z31Qtk='],
  ['Django argon2', 'argon2$argon2id$v=19$m=64,t=1,p=8$c2FsdHNhbHRzYWx0$4/c9xXQwmNy943IsFg1+zd0eeb98f+rx7aQUIkFzCLc'],
  ['Django bcrypt_sha256', 'bcrypt_sha256$$2b$04$cgtLxkYo9g8qmZSxPv2mcOgtzqsw72g/xr6BkpE140H7meTXCD24.'],
  ['Django bcrypt', 'bcrypt$$2b$04$KZbIiv65Ho78MWmSC5Qk1uToCxb0uuh7xQscJ/yjt5rpORTCzbC0m'],
  [
    'Django scrypt',
    'scrypt$16$salt.of-Django$8$5$TgbyjN0ReyRhlfjlU4XwUiXKF2UsHVJrpIUYgjm1Xa1eEqd1/Hxmddnp4BxTSOwSEjbNmyYymV3n01ioeIiqmw==',
  ],
  ['Django md5', 'md5$salt.of-Django$f995e06ef466c9ab7dff437f7a906d04'],
  ['Django sha1', 'sha1$salt.of-Django$19d198aca35d8b1b169a23e5ac1b380b047c75bd'],
  ['Spring bcrypt', '{bcrypt}$2a$04$YVg9y2FuA.upjktFM7STIu/v8cj14mSsjI3hWo2zSnRkJFfSuoxNO'],
  [
    'Spring argon2',
    '{argon2@SpringSecurity_v5_8}$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM0NTY3OA$RSwve6oT5sz2VwRScJa/Vw',
  ],
  ['Spring pbkdf2', '{pbkdf2}00010203040506079f38c15e9abe864c1b940f699fc4d4d6993572e9cb2517b349ea0ae2f2f79cb4'],
  [
    'Spring pbkdf2 of 5.8',
    '{pbkdf2@SpringSecurity_v5_8}000102030405060708090a0b0c0d0e0fcff603b209473577d619e9e74377e7f4407feb63c7aa22d767f136738be9e05e',
  ],
  [
    'Spring scrypt',
    '{scrypt}$e0801$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==$/zowdq5oeAbHDIWCGPOa0LYgvo/RAcBiJT3rGWMLvR0=',
  ],
  ['Spring SHA-256 with a salt', '{SHA-256}{xyz}fb8f88d1f2fea2f7bc60b7d731d91f6a4358693d45b655e8844c2deabee4c25c'],
  ['Spring MD5', '{MD5}55d2fddf8ba5768bbc44b083846cf439'],
] as const

describe.each(OF_OTHERS)('%s', (_, text) => {
  test('matches its password and no other', async () => {
    expect(await matches(text, PASSWORD)).toBe(true)
    expect(await matches(text, `${PASSWORD} `)).toBe(false)
  })

  test('is stored as a hash that is stored again as it is', async () => {
    const once = await stored(text)
    expect(await stored(once)).toBe(once)
  })
})

test('the example in the documentation of Spring Security', async () => {
  expect(await matches('{MD5}{thisissalt}2a4e7104c2780098f50ed5a84bb2323d', 'password')).toBe(true)
})

// What Firebase's documentation of its scrypt hashes, without the project's key.
test('a hash of Firebase needs no key of the project', async () => {
  const key = Buffer.from(
    'jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==',
    'base64',
  )
  const digest = Buffer.from(
    'lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==',
    'base64',
  )
  const salt = Buffer.concat([Buffer.from('42xEC+ixf3L2lw==', 'base64'), Buffer.from('Bw==', 'base64')])
  const text = firebaseHash({ digest, key, salt, memoryCost: 14, rounds: 8 })
  expect(await matches(text, 'user1password')).toBe(true)
  expect(await matches(text, 'user2password')).toBe(false)
  expect(text).not.toContain(key.toString('base64').slice(0, 16))
})

test('fast digests are stored only inside argon2id', async () => {
  for (const [name, text] of OF_OTHERS.filter(
    ([name]) => /MD5|SHA|sha1|md5/.test(name) && !/pbkdf2|bcrypt/.test(name),
  )) {
    const digest = text.replace(/^.*[}$]/, '')
    expect(await stored(text), name).toMatch(/^\$wrapped\$(md5|sha1|sha256|sha512)\$.*\$argon2id\$/)
    expect(await stored(text), name).not.toContain(digest)
  }
})

describe('is refused:', () => {
  const argon2id = (costs: string) => `$argon2id$v=19$${costs}$c29tZXNhbHQxMjM0NTY3OA$RSwve6oT5sz2VwRScJa/Vw`
  const scrypt = (costs: string) => `$scrypt$${costs}$c2FsdHNhbHQ$JEMG/f/hHH7M9muh3IKwIZP+w4aby0cFOTvmoLx1ylM`
  test.each([
    [argon2id('m=262144,t=3,p=1'), 'comparing with it takes 256 MiB of memory, more than 128'],
    [argon2id('m=64,t=17,p=1'), 'comparing with it takes 17 passes, more than 16'],
    [argon2id('m=64,t=1,p=16'), 'the password hash has too few MiB of memory'],
    [argon2id('m=64,t=0,p=1'), 'the password hash has too few passes'],
    [argon2id('m=131072,t=5,p=1'), 'comparing with it takes 640 MiB over all passes, more than 512'],
    [argon2id('m=064,t=1,p=1'), 'is in no notation that can be compared'],
    [`${argon2id('m=64,t=1,p=1')}AAA`, 'the salt or digest of the password hash is no exact base64'],
    [argon2id('m=64,t=1,p=1').replace('OA$', 'OB$'), 'the salt or digest of the password hash is no exact base64'],
    [
      '$2b$14$mtBZJkNYNRr.m.KAontcu.CSU/g./BjCt//mSYC4oaj9db2t5TCTS',
      'comparing with it takes 16384 rounds, more than 8192',
    ],
    [`pbkdf2_sha256$1500001$salt$${'A'.repeat(43)}=`, 'comparing with it takes 1500001 iterations, more than 1500000'],
    [`pbkdf2_sha256$0$salt$${'A'.repeat(43)}=`, 'the password hash has too few iterations'],
    [scrypt('ln=17,r=8,p=1'), 'comparing with it takes 128 MiB of memory, more than 64'],
    [`$pbkdf2-sha1$i=800000$c2FsdA$${'A'.repeat(43)}`, 'comparing with it takes 1600000 iterations, more than 1500000'],
    [scrypt('ln=0,r=8,p=1'), 'the password hash has too few rounds'],
    [scrypt('ln=16,r=8,p=3'), 'comparing with it takes 192 MiB over all lanes, more than 128'],
    [scrypt('ln=14,r=0,p=1'), 'the password hash has too few bytes in a block for so many rounds'],
    [scrypt('ln=16,r=1,p=1'), 'the password hash has too few bytes in a block for so many rounds'],
    ['scrypt$15$salt$8$1$JEMG/f/hHH7M9muh3IKwIZP+w4aby0cFOTvmoLx1ylM=', 'is in no notation that can be compared'],
    ['{noop}secret', 'this is a password in clear text, not a hash'],
    ['{MD5}55d2fddf8ba5768bbc44b083846cf4', 'a digest of md5 has another length'],
    ['$pbkdf2-sha256$i=10$c2FsdA$AAAA', 'the digest of the password hash is not of 16 to 128 bytes'],
    ['55d2fddf8ba5768bbc44b083846cf439', 'is in no notation that can be compared'],
    ['', 'is in no notation that can be compared'],
  ])('%s', async (text, reason) => {
    await expect(stored(text)).rejects.toThrow(reason)
  })
})

test('a hash that costs more than a sign-in may is taken when that is asked for', async () => {
  const costly = '$2b$14$mtBZJkNYNRr.m.KAontcu.CSU/g./BjCt//mSYC4oaj9db2t5TCTS'
  expect(await toStoredHash(costly, hash, { anyCost: true })).toBe(costly)
  const absurd = costly.replace('$14$', '$17$')
  await expect(toStoredHash(absurd, hash, { anyCost: true })).rejects.toThrow('takes 131072 rounds, far more than 8192')
})
