// How an app presents itself, as pages show it: text, links and a picture of its owner, none of which we vouch for.
import type { AppFace } from '../../gen/surveyauth/v1/app_face_pb.js'
import { appLogoHref } from './asset.js'
import { displayText } from './display.js'
import type { Texts } from './texts.js'

const DESCRIPTION_GRAPHEMES = 300
const CONTACT_GRAPHEMES = 100

export interface FaceView {
  /** Empty for none, as are the texts. */
  readonly logo: string
  readonly description: string
  readonly contact: string
  /** Each with the host where it leads, in ASCII. */
  readonly links: readonly { readonly label: string; readonly href: string; readonly host: string }[]
}

export function displayFace(face: AppFace | undefined, appid: string, { app: labels }: Texts): FaceView {
  const { homePage = '', description = '', contact = '', privacyLink = '', logoHash = '' } = face ?? {}
  return {
    logo: logoHash === '' ? '' : appLogoHref(appid, logoHash),
    description: displayText(description, DESCRIPTION_GRAPHEMES),
    contact: displayText(contact, CONTACT_GRAPHEMES),
    links: [...linkTo(labels.homePage, homePage), ...linkTo(labels.privacy, privacyLink)],
  }
}

function linkTo(label: string, address: string): FaceView['links'] {
  const url = URL.canParse(address) ? new URL(address) : undefined
  return url?.protocol === 'https:' ? [{ label, href: url.href, host: url.host }] : []
}
