// The apps of a user, as the user sees them and as operators do.
import type { MessageInitShape } from '@bufbuild/protobuf'
import { type Timestamp, timestampFromMs } from '@bufbuild/protobuf/wkt'
import type { ConnectedAppSchema } from '../../gen/surveyauth/v1/account_service_pb.js'
import { mayReadAnswers } from '../protocol/consent.js'
import { groupBy } from '../storage/group-by.js'
import type { TokenDeps } from './deps.js'
import { areAnswersOn } from './permissions.js'
import type { GrantRow } from './store/token-store.js'

const GRANTS_PER_READ = 200

/** The one with the newest grant first. */
export async function connectedApps(
  deps: TokenDeps,
  userId: string,
): Promise<MessageInitShape<typeof ConnectedAppSchema>[]> {
  const apps = groupBy(await liveGrants(deps, userId), ({ appid }) => appid).values()
  return Promise.all([...apps].map((ofApp) => toConnectedApp(deps, ofApp)))
}

/** Newest first. */
export async function liveGrants({ store, now }: TokenDeps, userId: string, appid?: string): Promise<GrantRow[]> {
  const filter = { userId, liveAtMs: now(), ...(appid !== undefined && { appid }) }
  const grants: GrantRow[] = []
  let after: string | undefined
  do {
    const page = await store.listGrants(filter, { limit: GRANTS_PER_READ, after })
    grants.push(...page.rows)
    after = page.next
  } while (after !== undefined)
  return grants
}

/** When the oldest of them began. */
export function startOf(grants: readonly GrantRow[]): Timestamp {
  return timestampFromMs(Math.min(...grants.map(({ createdAtMs }) => createdAtMs)))
}

/** `grants`: all live grants of a user to one app, newest first. */
async function toConnectedApp(
  { store, rules }: TokenDeps,
  grants: readonly GrantRow[],
): Promise<MessageInitShape<typeof ConnectedAppSchema>> {
  const { grantId, appid, appName, scope } = grants[0] as GrantRow // there is one
  const [app, face] = await Promise.all([store.findApp(appid), store.findAppFace(appid)])
  const ends = grants.flatMap(({ expiresAtMs, accessExpiresAtMs }) => [expiresAtMs, accessExpiresAtMs])
  const asked = { appReadsAnswers: app?.readsAnswers === true, areAnswersOn: areAnswersOn(rules) }
  const answersReadAtMs = Math.max(...grants.map((grant) => grant.answersReadAtMs))
  return {
    grantId,
    appid,
    appName,
    scope,
    createTime: startOf(grants),
    lastUseTime: timestampFromMs(Math.max(...grants.map(({ lastUsedAtMs }) => lastUsedAtMs))),
    expireTime: timestampFromMs(Math.max(...ends)),
    redirectUris: [...(app?.redirectUris ?? [])],
    face,
    readsAnswers: grants.some(({ permissions }) => mayReadAnswers({ permissions, ...asked })),
    ...(answersReadAtMs > 0 && { answersReadTime: timestampFromMs(answersReadAtMs) }),
  }
}
