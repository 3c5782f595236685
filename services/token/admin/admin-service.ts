// AdminService: what operators do. The command line is its client.
import type { AdminService } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import type { Handlers } from '../../rpc/dispatcher.js'
import type { TokenDeps } from '../deps.js'
import { createAppMethods } from './apps.js'
import { createGrantMethods } from './grants.js'
import { createImportMethods } from './imports.js'
import { createUserMethods } from './users.js'

export function createAdminHandlers(deps: TokenDeps): Handlers<typeof AdminService> {
  return {
    ...createAppMethods(deps),
    ...createUserMethods(deps),
    ...createImportMethods(deps),
    ...createGrantMethods(deps),
  }
}
