// A program as a next version may be: the built one, copied, with another version; one migration more, which adds a column to every
// table, a table and an index; one field more in every message of our protos, set in whatever it sends, and one RPC more in every
// service.
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { base64Decode, base64Encode } from '@bufbuild/protobuf/wire'
import {
  FieldDescriptorProtoSchema,
  FileDescriptorProtoSchema,
  FieldDescriptorProto_Label as Label,
  MethodDescriptorProtoSchema,
  FieldDescriptorProto_Type as Type,
} from '@bufbuild/protobuf/wkt'

const root = fileURLToPath(new URL('../../', import.meta.url))
const SCHEMAS = ['token', 'survey'].flatMap((name) =>
  ['sqlite', 'postgres'].map((database) => `services/${name}/store/${database}/schema.js`),
)

/**
 * Makes it in `folder`, and returns the path of its command, for Node.
 * `excludes`: its migration excludes the program that is built here.
 */
export function makeNextProgram(folder, { excludes = false } = {}) {
  for (const name of ['bin/survey-auth.js', 'bin/build-if-needed.js', 'dist']) {
    cpSync(path.join(root, name), path.join(folder, name), {
      recursive: true,
      filter: (file) => !file.endsWith('.map'),
    })
  }
  mkdirSync(path.join(folder, 'gateway'))
  for (const name of ['node_modules', 'gateway/pages', 'proto', 'docs', 'deploy', 'examples']) {
    symlinkSync(path.join(root, name), path.join(folder, name))
  }
  const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'))
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ ...manifest, version: nextVersion(manifest) }))
  const dist = path.join(folder, 'dist')
  for (const file of SCHEMAS) change([path.join(dist, file)], (text) => `${text}\n${migrationOf(file, excludes)}`)
  change(codeIn(path.join(dist, 'gen/surveyauth')), withMore)
  change(codeIn(path.join(dist, 'services/rpc')), sendingMore)
  writeFileSync(path.join(dist, 'services/rpc/next.js'), SENDING)
  return path.join(folder, 'bin/survey-auth.js')
}

function nextVersion({ version }) {
  const [major, minor] = version.split('.')
  return `${major}.${Number(minor) + 1}.0`
}

function codeIn(folder) {
  const names = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.js'))
  return names.map((name) => path.join(folder, name))
}

function change(files, of) {
  const changed = files.filter((file) => {
    const before = readFileSync(file, 'utf8')
    const after = of(before)
    writeFileSync(file, after)
    return after !== before
  })
  if (changed.length === 0) throw new Error(`nothing was changed in ${files.join(', ')}`)
}

function migrationOf(file, excludes) {
  const [, name, , database] = file.split('/')
  const integer = database === 'sqlite' ? 'INTEGER' : 'bigint'
  const table = `next_of_${name}`
  return `
const known = ${name}Schema.migrations
const tables = known.flatMap(({ sql }) => [...sql.matchAll(/CREATE (?:UNLOGGED )?TABLE (\\w+)/g)].map(([, table]) => table))
known.push({
  version: known.length + 1,
  name: 'next',
  sql: [
    ...tables.map((table) => \`ALTER TABLE \${table} ADD COLUMN next_number ${integer}\`),
    'CREATE TABLE ${table} (id ${integer} NOT NULL PRIMARY KEY)${database === 'sqlite' ? ' STRICT' : ''}',
    \`CREATE INDEX ${table}_index ON \${tables[0]} (next_number)\`,
  ].join(';'),
  ${excludes ? 'usableFrom: known.length + 1,' : ''}
})
`
}

/** Generated code, whose descriptors have a field more in every message, and a method more in every service. */
function withMore(code) {
  return code.replace(/(fileDesc\(")([^"]+)/, (_, before, descriptor) => {
    const file = fromBinary(FileDescriptorProtoSchema, base64Decode(descriptor))
    for (const message of file.messageType) addField(message)
    for (const service of file.service) addMethod(service)
    return `${before}${base64Encode(toBinary(FileDescriptorProtoSchema, file), 'std_raw')}`
  })
}

function addField(message) {
  if (message.options?.mapEntry) return
  for (const nested of message.nestedType) addField(nested)
  const number = Math.max(0, ...message.field.map((one) => one.number)) + 1
  const more = { name: 'next_text', jsonName: 'nextText', number, label: Label.OPTIONAL, type: Type.STRING }
  message.field.push(create(FieldDescriptorProtoSchema, more))
}

function addMethod({ method }) {
  const [{ inputType, outputType }] = method
  method.push(create(MethodDescriptorProtoSchema, { name: 'Next', inputType, outputType }))
}

/** Compiled code of the doors and the client, which sets that field in all that is sent. */
function sendingMore(code) {
  const imported = /^import \{([^}]*)\btoBinary\b,?([^}]*)\} from '@bufbuild\/protobuf';$/m
  if (!imported.test(code)) return code
  return code.replace(imported, `import {$1$2} from '@bufbuild/protobuf';\nimport { toBinary } from './next.js';`)
}

const SENDING = `
import { toBinary as encoded } from '@bufbuild/protobuf'
export function toBinary(desc, message) {
  setNext(desc, message)
  return encoded(desc, message)
}
function setNext(desc, message) {
  if (!desc.typeName.startsWith('surveyauth.')) return
  message.nextText = 'of the next version'
  for (const { fieldKind, listKind, message: inner, localName } of desc.fields) {
    const value = message[localName]
    if (!inner || value === undefined) continue
    if (fieldKind === 'message') setNext(inner, value)
    if (fieldKind === 'list' && listKind === 'message') for (const one of value) setNext(inner, one)
  }
}
`
