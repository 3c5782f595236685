import type { Connection } from '../../../sqlite/open.js'
import { appWrites, liveAppFinder } from './apps.js'
import { eventRecorder } from './audit.js'
import { codeWrites, unusedCodeRemovers } from './codes.js'
import { grantCompleter, grantEnder, grantWrites } from './grants.js'
import type { KeptRows } from './kept-rows.js'
import { appChecker, appStateFinder, secretInserter, secretWrites } from './secrets.js'
import { sessionWrites } from './sessions.js'
import { tokenWrites } from './tokens.js'
import { upkeepWrites } from './upkeep.js'
import { liveUserFinder, userWrites } from './users.js'

/** Every write of the token store over one connection, its statements prepared: each runs inside a transaction. */
export function tokenStoreWrites(db: Connection, kept: KeptRows) {
  const record = eventRecorder(db, kept)
  const insertSecret = secretInserter(db)
  const findAppState = appStateFinder(db, kept)
  const checkApp = appChecker(findAppState)
  const unusedCodes = unusedCodeRemovers(db)
  const endGrant = grantEnder(db, record)
  const completeGrant = grantCompleter(db, endGrant)
  const isLiveApp = liveAppFinder(findAppState)
  const isLiveUser = liveUserFinder(db, kept)
  return {
    ...appWrites(db, record, insertSecret, unusedCodes.ofApp),
    ...secretWrites(db, record, insertSecret),
    ...userWrites(db, record, unusedCodes.ofUser),
    ...sessionWrites(db, record),
    ...codeWrites(db, { record, isLiveApp, checkApp, isLiveUser, completeGrant, endGrant }),
    ...tokenWrites(db, { record, checkApp, isLiveUser }),
    ...grantWrites(db, endGrant, unusedCodes.ofAppAndUser, kept),
    ...upkeepWrites(db, kept),
  }
}
