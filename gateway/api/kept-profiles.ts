import { jsonBytes } from '../envelope.js'

interface Profile {
  readonly openid: string
  readonly nickname: string
  readonly avatar: string
}

/** Profiles as JSON, kept: one that is requested again and has not changed is not serialized again. */
export class KeptProfiles {
  readonly #maxCharacters: number
  readonly #write: (profile: Profile) => string
  readonly #kept = new Map<string, Profile & { readonly bytes: string }>()
  #characters = 0

  /** `maxCharacters`: of all texts and the values they were made from. Beyond that, they are dropped and made again. */
  constructor(maxCharacters: number, write: (profile: Profile) => string = jsonBytes) {
    this.#maxCharacters = maxCharacters
    this.#write = write
  }

  /** As jsonBytes returns it. */
  bytesOf({ openid, nickname, avatar }: Profile): string {
    const known = this.#kept.get(openid)
    if (known?.nickname === nickname && known.avatar === avatar) return known.bytes
    const bytes = this.#write({ openid, nickname, avatar })
    this.#characters += 2 * bytes.length
    if (this.#characters > this.#maxCharacters) {
      this.#kept.clear()
      this.#characters = 2 * bytes.length
    }
    this.#kept.set(openid, { openid, nickname, avatar, bytes })
    return bytes
  }
}
