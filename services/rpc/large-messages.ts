// Large messages that go over a connection again and again, encoded and decoded once. Nobody may change a message.
import { type DescMessage, fromBinary, type Message, type MessageShape, toBinary } from '@bufbuild/protobuf'
import { BoundedMap, keyOf } from './bounded-map.js'

/** Below it, encoding anew costs less than looking for what was encoded. */
const LARGE_BYTES = 512
/** Of encoded messages kept by a decoder; decoded they take up to 20 times as much. */
const MAX_BYTES = 6 * 1024 * 1024

const encoded = new WeakMap<Message, Uint8Array>()

/** As toBinary does; a large message that comes again is encoded already. */
export function encode<D extends DescMessage>(desc: D, message: MessageShape<D>): Uint8Array {
  const known = encoded.get(message)
  if (known) return known
  const bytes = toBinary(desc, message)
  if (bytes.length >= LARGE_BYTES) encoded.set(message, bytes)
  return bytes
}

/**
 * Decodes messages of one peer. Large ones are found by their bytes, so what is kept can not be stale, and who receives
 * the same again is given the same object and can keep what it made of it.
 */
export class Decoder {
  readonly #known = new BoundedMap<Message>(MAX_BYTES)

  /** @throws Error when the bytes are no such message */
  decode<D extends DescMessage>(desc: D, bytes: Uint8Array): MessageShape<D> {
    if (bytes.length < LARGE_BYTES) return fromBinary(desc, bytes)
    const key = desc.typeName + keyOf(bytes)
    const known = this.#known.get(key)
    if (known) return known as MessageShape<D>
    const message = fromBinary(desc, bytes)
    this.#known.keep(key, message, key.length)
    return message
  }
}
