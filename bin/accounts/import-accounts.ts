// Sends the accounts in a file to AdminService.ImportUsers, and says what has become of them.
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { create } from '@bufbuild/protobuf'
import { timestampFromMs } from '@bufbuild/protobuf/wkt'
import { Code, ConnectError } from '@connectrpc/connect'
import {
  type ImportedUser,
  ImportedUserSchema,
  ImportOutcome,
  type ImportResult,
  OnExisting,
} from '../../gen/surveyauth/v1/admin_service_pb.js'
import type { Json } from '../commands/command.js'
import { asOperator, type Operator } from '../compose/operator.js'
import { isOfSystem, unreadable } from '../error-code.js'
import { CommandError, EXIT } from '../exit.js'
import { inBatches, nextOf, noticeInterruption, printTotals, Refusals, soFar, type Tally } from '../import-file.js'
import { message, progress } from '../output.js'
import { csvRows, jsonDocument, jsonLines, open, type RecordRead } from '../records.js'
import { type Account, readAccount } from './account.js'
import { type Convert, fromAuth0, fromFirebase, fromKeycloak, readFirebaseParameters } from './converters.js'

export interface ImportOptions extends Json {
  readonly format?: 'ndjson' | 'csv'
  readonly convert?: 'keycloak' | 'auth0' | 'firebase'
  readonly firebaseParameters?: string
  readonly onExisting: keyof typeof ON_EXISTING
  readonly replacePasswords?: true
  readonly allowCost?: true
  readonly dryRun?: true
  readonly from: number
  readonly report?: string
}

const ON_EXISTING = { fail: OnExisting.UNSPECIFIED, skip: OnExisting.SKIP, update: OnExisting.UPDATE } as const
const OUTCOMES = {
  [ImportOutcome.UNSPECIFIED]: 'refused',
  [ImportOutcome.CREATED]: 'created',
  [ImportOutcome.UPDATED]: 'updated',
  [ImportOutcome.UNCHANGED]: 'unchanged',
  [ImportOutcome.SKIPPED]: 'skipped',
  [ImportOutcome.REFUSED]: 'refused',
} as const

/** Users of one call, which is one transaction: the contract's bound, ImportUsersRequest.users. */
const MAX_BATCH = 200
/** How often a call is sent again while all hashing threads are taken. */
const MAX_ATTEMPTS = 60

interface AccountTally extends Tally {
  created: number
  updated: number
  unchanged: number
  skipped: number
}

export async function importAccounts(file: string, options: ImportOptions): Promise<void> {
  const tally: AccountTally = { read: 0, created: 0, updated: 0, unchanged: 0, skipped: 0, refused: 0 }
  const batches = inBatches(records(file, options), options.from, { maxItems: MAX_BATCH })
  let batch = await nextOf(batches, file) // before a database is made for nothing
  const refusals = new Refusals(options.report)
  const interruption = noticeInterruption()
  const say = progress()
  let nextLine = options.from
  try {
    await asOperator(
      async ({ admin }) => {
        for (; batch && !interruption.aborted; batch = await nextOf(batches, file)) {
          await storeBatch(admin, batch, options, tally, refusals)
          nextLine = (batch.at(-1)?.line ?? nextLine) + 1
          say(soFar(tally), interruption.aborted ? 1 : batch.at(-1)?.share)
        }
      },
      { creates: true },
    )
  } catch (error) {
    if (nextLine > options.from) message(`stored up to here: go on with --from ${nextLine}`)
    throw error
  } finally {
    await refusals.end()
  }
  printTotals(tally, options, refusals)
  if (!interruption.aborted) return
  throw new CommandError(`interrupted; go on with --from ${nextLine}`)
}

/** @throws CommandError when the options contradict each other */
function records(file: string, { format, convert, firebaseParameters }: ImportOptions): AsyncGenerator<ReadAccount> {
  if ((convert === 'firebase') !== (firebaseParameters !== undefined)) {
    throw new CommandError('--convert firebase and --firebase-parameters go together', EXIT.usage)
  }
  const input = open(file)
  if (convert === 'auth0') return accounts(jsonLines(input), fromAuth0)
  if (convert === 'keycloak') return accounts(jsonDocument(input), fromKeycloak)
  if (firebaseParameters !== undefined)
    return accounts(jsonDocument(input), fromFirebase(parametersIn(firebaseParameters)))
  const isCsv = format === undefined ? path.extname(file).toLowerCase() === '.csv' : format === 'csv'
  return accounts(isCsv ? csvRows(input) : jsonLines(input), (record) => record as Account)
}

function parametersIn(file: string) {
  try {
    return readFirebaseParameters(file)
  } catch (error) {
    throw new CommandError(isOfSystem(error) ? unreadable(file, error) : (error as Error).message)
  }
}

interface ReadAccount extends Pick<RecordRead, 'line' | 'share'> {
  readonly read: Account | { readonly fault: string }
}

async function* accounts(all: AsyncGenerator<RecordRead>, convert: Convert): AsyncGenerator<ReadAccount> {
  for await (const { read, ...of } of all) {
    yield { ...of, read: 'fault' in read ? read : account(read.value, convert) }
  }
}

function account(value: unknown, convert: Convert): ReadAccount['read'] {
  try {
    return readAccount(convert(value))
  } catch (error) {
    return { fault: (error as Error).message }
  }
}

async function storeBatch(
  admin: Operator['admin'],
  batch: readonly ReadAccount[],
  options: ImportOptions,
  tally: AccountTally,
  refusals: Refusals,
): Promise<void> {
  const users = batch.flatMap(({ read }) => ('fault' in read ? [] : [toMessage(read)]))
  const results = users.length === 0 ? [] : await sent(admin, users, options)
  let next = 0
  for (const { line, read } of batch) {
    const result = 'fault' in read ? undefined : results[next++]
    const outcome = result ? OUTCOMES[result.outcome] : 'refused'
    tally.read += 1
    tally[outcome] += 1
    if ('fault' in read) refusals.add({ line, reason: read.fault })
    else if (outcome === 'refused') refusals.add({ line, reason: result?.reason ?? '', ...keysOf(read) })
  }
  await refusals.written()
}

/** Waits while sign-ins take all hashing threads. */
async function sent(
  admin: Operator['admin'],
  users: ImportedUser[],
  options: ImportOptions,
): Promise<readonly ImportResult[]> {
  const request = {
    users,
    onExisting: ON_EXISTING[options.onExisting],
    replacePasswords: options.replacePasswords === true,
    dryRun: options.dryRun === true,
    anyCost: options.allowCost === true,
  }
  for (let attempt = 1; ; attempt += 1) {
    try {
      return (await admin.importUsers(request)).results
    } catch (error) {
      const isCrowded = error instanceof ConnectError && error.code === Code.ResourceExhausted
      if (!isCrowded || attempt === MAX_ATTEMPTS) throw error
      await setTimeout(1_000)
    }
  }
}

function toMessage(account: Account): ImportedUser {
  const { external_id: externalId = '', username = '', nickname, avatar, password_hash: passwordHash = '' } = account
  return create(ImportedUserSchema, {
    externalId,
    username,
    ...(nickname !== undefined && { nickname: nickname ?? '' }),
    ...(avatar !== undefined && { avatar: avatar ?? '' }),
    passwordHash,
    disabled: account.disabled,
    identities: account.identities,
    ...(account.created_at !== undefined && { createTime: timestampFromMs(Date.parse(account.created_at)) }),
  })
}

function keysOf({ external_id, username }: Account) {
  return { ...(external_id !== undefined && { external_id }), ...(username !== undefined && { username }) }
}
