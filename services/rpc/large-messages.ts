// Large messages that are sent over a connection again and again, encoded and decoded once. Nobody may change a message.
import { type DescMessage, fromBinary, type Message, type MessageShape, toBinary } from '@bufbuild/protobuf'
import { BoundedMap, byteKey } from '../storage/bounded-map.js'

/** Below this size, encoding again costs less than looking up what was encoded. */
const LARGE_BYTES = 512
/** Encoded messages that a decoder keeps, in bytes; decoded, they take up to 20 times as much. */
const MAX_BYTES = 6 * 1024 * 1024

const encoded = new WeakMap<Message, Uint8Array>()

/** Like toBinary, but a large message is encoded only once. */
export function encode<D extends DescMessage>(desc: D, message: MessageShape<D>): Uint8Array {
  const known = encoded.get(message)
  if (known) return known
  const bytes = toBinary(desc, message)
  if (bytes.length >= LARGE_BYTES) encoded.set(message, bytes)
  return bytes
}

/** Bytes of each end in a key: messages of a type differ at the start, by an id, or at the end, by whom they are for. */
const END_BYTES = 32

interface Known {
  readonly bytes: Uint8Array
  readonly message: Message
}

/**
 * Decodes messages of one peer. Large ones are looked up by their length and ends and compared byte for byte, so a kept message
 * is never stale. A caller that receives the same bytes again gets the same object, and can keep what it made of it.
 */
export class Decoder {
  readonly #known = new BoundedMap<Known>(MAX_BYTES)

  /** @throws Error when the bytes are not such a message */
  decode<D extends DescMessage>(desc: D, bytes: Uint8Array): MessageShape<D> {
    if (bytes.length < LARGE_BYTES) return fromBinary(desc, bytes)
    const key = `${desc.typeName}${bytes.length}${byteKey(bytes.subarray(0, END_BYTES))}${byteKey(bytes.subarray(-END_BYTES))}`
    const known = this.#known.get(key)
    if (known && Buffer.compare(known.bytes, bytes) === 0) return known.message as MessageShape<D>
    const own = new Uint8Array(bytes) // unknown fields of a message are slices of the bytes it came in
    const message = fromBinary(desc, own)
    this.#known.keep(key, { bytes: own, message }, own.length)
    return message
  }
}
