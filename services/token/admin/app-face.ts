// How an app presents itself, as its owner has it: what may be shown to users, and what is stored of it.
import { hash } from 'node:crypto'
import type { AppFaceChange } from '../../../gen/surveyauth/v1/admin_service_pb.js'
import { ErrorReason } from '../../../gen/surveyauth/v1/error_pb.js'
import { ServiceError } from '../../rpc/service-error.js'
import { logoOf } from '../logo.js'
import { type FaceChange, NO_LOGO, type StoredLogo } from '../store/token-store.js'

/** What is given. @throws ServiceError INVALID_ARGUMENT */
export function toFaceChange(given: AppFaceChange | undefined): FaceChange {
  const { homePage, description, contact, privacyLink, logo } = given ?? {}
  return {
    ...(homePage !== undefined && { homePage: requireLink('home_page', homePage) }),
    ...(description !== undefined && { description }),
    ...(contact !== undefined && { contact }),
    ...(privacyLink !== undefined && { privacyLink: requireLink('privacy_link', privacyLink) }),
    ...(logo !== undefined && { logo: logo.length === 0 ? NO_LOGO : requireLogo(logo) }),
  }
}

/** A user name before the host would look like the host. */
function requireLink(name: string, link: string): string {
  const isGood = link === '' || (URL.canParse(link) && !/^https:\/\/[^/?#]*@/.test(link))
  if (isGood) return link
  throw new ServiceError(ErrorReason.INVALID_ARGUMENT, `${name} must be an address, without a user name`)
}

function requireLogo(bytes: Uint8Array): StoredLogo {
  try {
    return { ...logoOf(bytes), logoHash: hash('sha256', bytes, 'base64url') }
  } catch (error) {
    throw new ServiceError(ErrorReason.INVALID_ARGUMENT, `logo ${error instanceof Error ? error.message : ''}`)
  }
}
