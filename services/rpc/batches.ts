// Messages that travel together over a multiplexed stream are encoded together. On the wire, a message in a field of bytes
// looks the same as in a field of its own type. So for encoding, the field is given that type, and the message in it need not
// be encoded to bytes of its own first, which would cost four times as much as all the rest.
import { clone, createFileRegistry, type DescField, type DescFile, type DescMessage } from '@bufbuild/protobuf'
import { FieldDescriptorProto_Type, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'

/** Items encoded at a time: enough to share the cost of a message, few enough that they seldom turn out too large. */
const MAX_ITEMS = 128

const typed = new Map<DescField, Map<DescMessage, DescMessage>>()

/** `whole` as a schema for encoding: `field`, a field of bytes in it or in what it holds, becomes a field of a message `held`. */
export function holding(whole: DescMessage, field: DescField, held: DescMessage): DescMessage {
  const ofField = typed.get(field) ?? new Map<DescMessage, DescMessage>()
  typed.set(field, ofField)
  const known = ofField.get(held)
  if (known) return known
  const made = withType(whole, field, held)
  ofField.set(held, made)
  return made
}

function withType({ file, typeName }: DescMessage, field: DescField, held: DescMessage): DescMessage {
  const proto = clone(FileDescriptorProtoSchema, file.proto)
  proto.service = []
  proto.dependency.push(held.file.proto.name)
  const ofField = proto.messageType.find(({ name }) => name === field.parent.name)?.field
  const typedField = ofField?.find(({ number }) => number === field.number)
  if (!typedField) throw new Error(`${field.toString()} is not in ${file.name}`)
  typedField.type = FieldDescriptorProto_Type.MESSAGE
  typedField.typeName = `.${held.typeName}`
  const files = new Map([...withDependencies(file), ...withDependencies(held.file)])
  const message = createFileRegistry(proto, (name) => files.get(name)).getMessage(typeName)
  if (!message) throw new Error(`${typeName} is not in ${file.name}`)
  return message
}

function* withDependencies(file: DescFile): Generator<[string, DescFile]> {
  yield [file.proto.name, file]
  for (const dependency of file.dependencies) yield* withDependencies(dependency)
}

export interface BatchOptions<Item> {
  readonly encode: (items: readonly Item[]) => Uint8Array
  /** Size limit of a batch; a single larger item still makes one. */
  readonly maxBytes: number
  /** Size of an item in bytes, if known in advance: a large one is then not encoded in vain, together with too many others. */
  readonly sizeOf?: (item: Item) => number
  /** Called for an item that `encode` throws for; it is left out. */
  readonly onUnencodable: (item: Item, error: unknown) => void
}

/** Encodes all items in batches. Takes no more from `items` than the next batch needs. */
export function* inBatches<Item>(items: Iterable<Item>, options: BatchOptions<Item>): Generator<Buffer> {
  let some: Item[] = []
  let bytes = 0
  for (const item of items) {
    const size = options.sizeOf?.(item) ?? 0
    if (some.length === MAX_ITEMS || (some.length > 0 && bytes + size > options.maxBytes)) {
      yield* encoded(some, options)
      some = []
      bytes = 0
    }
    some.push(item)
    bytes += size
  }
  if (some.length > 0) yield* encoded(some, options)
}

function* encoded<Item>(items: readonly Item[], options: BatchOptions<Item>): Generator<Buffer> {
  const [first] = items
  try {
    const bytes = options.encode(items)
    if (bytes.length <= options.maxBytes || items.length === 1) {
      yield Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
      return
    }
  } catch (error) {
    if (first !== undefined && items.length === 1) {
      options.onUnencodable(first, error)
      return
    }
  }
  const half = items.length >> 1
  yield* encoded(items.slice(0, half), options)
  yield* encoded(items.slice(half), options)
}
