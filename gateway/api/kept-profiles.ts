import { jsonBytes } from '../envelope.js'

interface Profile {
  readonly openid: string
  readonly nickname: string
  readonly avatar: string
}

/** Profiles as JSON: who is asked for again and has not changed is not written anew. */
export class KeptProfiles {
  readonly #maxCharacters: number
  readonly #write: (profile: Profile) => string
  readonly #kept = new Map<string, Profile & { readonly bytes: string }>()
  #characters = 0

  /** `maxCharacters`: of all, and of what they were made of. With more, they are forgotten and made again. */
  constructor(maxCharacters: number, write: (profile: Profile) => string = jsonBytes) {
    this.#maxCharacters = maxCharacters
    this.#write = write
  }

  /** As jsonBytes gives it. */
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
