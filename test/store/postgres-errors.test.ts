// What a failure of PostgreSQL, or of the connection to it, means to the caller.
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { NotWritable, PoolExhausted, translate } from '../../services/storage/postgres/errors.js'
import { StoreUnavailable } from '../../services/storage/store-unavailable.js'

function failure(code: string): Error {
  return Object.assign(new pg.DatabaseError('refused', 0, 'error'), { code })
}

/** Errors with which the connection, or the outcome, is lost. */
const LOST: [string, Error][] = [
  ['08006 connection failure', failure('08006')],
  ['57P01 shutdown', failure('57P01')],
  ['57P02 crash', failure('57P02')],
  ['57P03 still starting', failure('57P03')],
  ['57P05 idle for too long', failure('57P05')],
  ['25P03 idle in a transaction for too long', failure('25P03')],
  ['25P04 transaction for too long', failure('25P04')],
  ['40003 statement completion unknown', failure('40003')],
  ['ECONNRESET', Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })],
  ['a connection that the driver gave up', new Error('Connection terminated unexpectedly')],
]

/** Errors after which it is certain that nothing was done. */
const ANSWERED: [string, Error][] = [
  ['28P01 wrong password', failure('28P01')],
  ['53100 disk full', failure('53100')],
  ['53300 too many connections', failure('53300')],
  ['57014 statement timeout', failure('57014')],
  ['58030 input or output failed', failure('58030')],
  ['3D000 no such database', failure('3D000')],
  ['25006 read-only', failure('25006')],
  ['40001 serialization failure', failure('40001')],
  ['40P01 deadlock', failure('40P01')],
  ['55P03 lock timeout', failure('55P03')],
  ['a standby', new NotWritable('a standby')],
  ['no free connection', new PoolExhausted()],
]

describe('a database is unavailable', () => {
  test.each(LOST)('because of %s, and the outcome of a commit is unknown', (_, error) => {
    expect(translate(error)).toMatchObject({ outcomeUnknown: false, cause: error })
    expect(translate(error)).toBeInstanceOf(StoreUnavailable)
    expect(translate(error, true)).toMatchObject({ outcomeUnknown: true })
  })

  test.each(ANSWERED)('because of %s, and nothing was committed', (_, error) => {
    expect(translate(error, true)).toMatchObject({ outcomeUnknown: false, cause: error })
    expect(translate(error, true)).toBeInstanceOf(StoreUnavailable)
  })
})

test.each(['42P05', '26000'])('%s is of a pooler without prepared statements, and says what to set', (code) => {
  const cause = { message: expect.stringMatching(/use PgBouncer 1\.21 or newer with max_prepared_statements/) }
  expect(translate(failure(code))).toMatchObject({ name: 'StoreUnavailable', outcomeUnknown: false, cause })
})

test.each<[string, Error]>([
  ['22003 number out of range', failure('22003')],
  ['23505 unique violation', failure('23505')],
  ['42601 syntax error', failure('42601')],
  ['TypeError', Object.assign(new TypeError('must be a string'), { code: 'ERR_INVALID_ARG_TYPE' })],
])('%s is a defect, not an outage', (_, error) => {
  expect(translate(error, true)).toBe(error)
})
