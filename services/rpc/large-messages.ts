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

/** Of each end: where messages of a type differ first, by an id, and last, by whom they are for. */
const END_BYTES = 32

interface Known {
  readonly bytes: Uint8Array
  readonly message: Message
}

/**
 * Decodes messages of one peer. Large ones are found by their length and ends and compared byte for byte, so what is kept
 * can not be stale, and who receives the same again is given the same object and can keep what it made of it.
 */
export class Decoder {
  readonly #known = new BoundedMap<Known>(MAX_BYTES)

  /** @throws Error when the bytes are no such message */
  decode<D extends DescMessage>(desc: D, bytes: Uint8Array): MessageShape<D> {
    if (bytes.length < LARGE_BYTES) return fromBinary(desc, bytes)
    const key = `${desc.typeName}${bytes.length}${keyOf(bytes.subarray(0, END_BYTES))}${keyOf(bytes.subarray(-END_BYTES))}`
    const known = this.#known.get(key)
    if (known && Buffer.compare(known.bytes, bytes) === 0) return known.message as MessageShape<D>
    const message = fromBinary(desc, bytes)
    this.#known.keep(key, { bytes: new Uint8Array(bytes), message }, bytes.length)
    return message
  }
}
