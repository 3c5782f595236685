// LimitService: what all gateways have admitted together.
import { timestampMs } from '@bufbuild/protobuf/wkt'
import type { LimitService } from '../../gen/surveyauth/internal/v1/limit_service_pb.js'
import { ErrorReason } from '../../gen/surveyauth/v1/error_pb.js'
import type { Handlers } from '../rpc/dispatcher.js'
import { ServiceError } from '../rpc/service-error.js'
import type { TokenStore } from './store/token-store.js'

export function createLimitHandlers(store: Pick<TokenStore, 'countRequests'>): Handlers<typeof LimitService> {
  return {
    async countRequests({ counts }) {
      if (new Set(counts.map(({ key }) => key)).size < counts.length) {
        throw new ServiceError(ErrorReason.INVALID_ARGUMENT, 'counts must have each key once')
      }
      const totals = await store.countRequests(
        counts.map(({ key, windowEndTime, requests }) => ({
          key,
          windowEndMs: windowEndTime ? timestampMs(windowEndTime) : 0,
          requests,
        })),
      )
      return { totals: [...totals] }
    },
  }
}
