/** Bytes as a map key, one character per byte. */
export function byteKey(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1')
}

/** A cache of at most `maxBytes`. When they are used up, everything is evicted and it starts over. */
export class BoundedMap<Value> {
  readonly #maxBytes: number
  #values = new Map<string, { readonly value: Value; readonly bytes: number }>()
  #bytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  get(key: string): Value | undefined {
    return this.#values.get(key)?.value
  }

  /** `bytes`: what key and value take together. A value that takes more than `maxBytes` is not kept. */
  keep(key: string, value: Value, bytes: number): void {
    if (bytes > this.#maxBytes) return
    const replaced = this.#values.get(key)?.bytes ?? 0
    if (this.#bytes - replaced + bytes > this.#maxBytes) this.forgetAll()
    else this.#bytes -= replaced
    this.#values.set(key, { value, bytes })
    this.#bytes += bytes
  }

  forgetAll(): void {
    if (this.#values.size > 0) this.#values = new Map()
    this.#bytes = 0
  }
}
