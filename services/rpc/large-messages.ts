// Large messages that are sent over a connection again and again, encoded and decoded once. Nobody may change a message.
// A validator is for one receiver: it comes after what all share, which is the same bytes and the same objects for each.
import { create, type DescMessage, fromBinary, type Message, type MessageShape, toBinary } from '@bufbuild/protobuf'
import { BinaryReader } from '@bufbuild/protobuf/wire'
import { BoundedMap, byteKey } from '../collections/bounded-map.js'

/** Below this size, encoding again costs less than looking up what was encoded. */
const LARGE_BYTES = 512
/** Encoded messages that a decoder keeps, in bytes; decoded, they take up to 20 times as much. */
const MAX_BYTES = 6 * 1024 * 1024

const encoded = new WeakMap<Message, Uint8Array>()

type Validated = Message & { readonly validator: Uint8Array }

/** For a message to one receiver, the message without its validator, which all receivers share. */
const shared = new WeakMap<Message, Message>()

/** `message` with the validator made of `wanted`, or as it is if `wanted` is empty. What it shares is encoded once. */
export function withValidator<M extends Validated>(
  message: M,
  wanted: Uint8Array,
  validatorOf: (wanted: Uint8Array) => Uint8Array,
): M {
  if (wanted.length === 0) return message
  const own = { ...message, validator: validatorOf(wanted) }
  shared.set(own, message)
  return own
}

/** Like toBinary, but a large message is encoded only once. */
export function encode<D extends DescMessage>(desc: D, message: MessageShape<D>): Uint8Array {
  const known = encoded.get(message)
  if (known) return known
  const base = shared.get(message)
  if (base) {
    const { validator } = message as Message as Validated
    return Buffer.concat([encode(desc, base as MessageShape<D>), toBinary(desc, create(desc, { validator } as never))])
  }
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
    const end = startOfValidator(desc, bytes)
    const message = this.#decodeLarge(desc, bytes.subarray(0, end))
    if (end === bytes.length) return message
    const { validator } = fromBinary(desc, bytes.subarray(end)) as Message as Validated
    return { ...message, validator }
  }

  #decodeLarge<D extends DescMessage>(desc: D, bytes: Uint8Array): MessageShape<D> {
    const key = `${desc.typeName}${bytes.length}${byteKey(bytes.subarray(0, END_BYTES))}${byteKey(bytes.subarray(-END_BYTES))}`
    const known = this.#known.get(key)
    if (known && Buffer.compare(known.bytes, bytes) === 0) return known.message as MessageShape<D>
    const own = new Uint8Array(bytes) // unknown fields of a message are slices of the bytes it came in
    const message = fromBinary(desc, own)
    this.#known.keep(key, { bytes: own, message }, own.length)
    return message
  }
}

/** Where the validator begins, if it is encoded last; the end if there is none, or if other fields follow. */
function startOfValidator(desc: DescMessage, bytes: Uint8Array): number {
  const number = desc.field.validator?.number
  const reader = new BinaryReader(bytes)
  while (number !== undefined && reader.pos < reader.len) {
    const start = reader.pos
    const [field, wireType] = reader.tag()
    reader.skip(wireType)
    if (field === number && reader.pos === reader.len) return start
  }
  return bytes.length
}
