// Checks answers against docs/api/openapi.yaml.
import { existsSync, readFileSync } from 'node:fs'
import Ajv2020, { type ValidateFunction } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { parse } from 'yaml'

const FILE = new URL('../../docs/api/openapi.yaml', import.meta.url)
const ID = 'openapi'

type Node = Readonly<Record<string, unknown>>

export interface Operation {
  readonly method: string
  readonly path: string
}

/** The document as parsed, and a compiler of the schemas in it. */
export class OpenApi {
  readonly document: Node
  readonly #ajv = new Ajv2020.default({ strict: false, allErrors: true })
  readonly #validators = new Map<string, ValidateFunction>()

  constructor(text: string) {
    this.document = asNode(parse(text))
    addFormats.default(this.#ajv)
    this.#ajv.addSchema(this.document, ID)
  }

  get paths(): readonly string[] {
    return Object.keys(asNode(this.document.paths))
  }

  /** Compiles the schema at a JSON pointer of the document. */
  validator(pointer: string): ValidateFunction {
    const known = this.#validators.get(pointer)
    if (known !== undefined) return known
    const compiled = this.#ajv.compile({ $ref: `${ID}#${encodeURI(pointer)}` })
    this.#validators.set(pointer, compiled)
    return compiled
  }

  /** Pointer to the JSON schema of an answer; undefined when the document does not describe it. */
  answerPointer(template: string, method: string, status: number): string | undefined {
    const operation = `/paths/${escapePointer(template)}/${method.toLowerCase()}`
    for (const key of [String(status), 'default']) {
      const response = this.follow(`${operation}/responses/${key}`)
      if (response === undefined) continue
      const schema = `${response}/content/${escapePointer('application/json')}/schema`
      if (this.at(schema) !== undefined) return schema
    }
    return undefined
  }

  /** The path of the document that a request path belongs to. */
  template(path: string): string | undefined {
    return this.paths.find((template) => {
      const wanted = template.split('/')
      const given = path.split('/')
      return wanted.length === given.length && wanted.every((part, i) => part.startsWith('{') || part === given[i])
    })
  }

  at(pointer: string): unknown {
    let node: unknown = this.document
    for (const part of pointer.split('/').slice(1)) {
      if (typeof node !== 'object' || node === null) return undefined
      node = (node as Node)[part.replaceAll('~1', '/').replaceAll('~0', '~')]
    }
    return node
  }

  /** The pointer itself, or where its $ref leads; undefined when there is nothing. */
  follow(pointer: string): string | undefined {
    const node = this.at(pointer)
    if (node === undefined) return undefined
    const target = typeof node === 'object' && node !== null ? (node as Node).$ref : undefined
    return typeof target === 'string' ? this.follow(target.slice(1)) : pointer
  }
}

const loaded = existsSync(FILE) ? new OpenApi(readFileSync(FILE, 'utf8')) : undefined

/** The document of this repository. */
export function loadOpenApi(): OpenApi {
  if (loaded === undefined) throw new Error('docs/api/openapi.yaml is missing')
  return loaded
}

/** What is wrong with an answer to a documented operation; nothing is wrong with undocumented ones. */
export function openapiViolations({ method, path }: Operation, status: number, body: unknown): readonly string[] {
  if (method !== 'GET') return []
  const openapi = loadOpenApi()
  const template = openapi.template(path.split('?')[0] ?? '')
  if (template === undefined) return []
  const pointer = openapi.answerPointer(template, method, status)
  if (pointer === undefined) return [`${method} ${template}: no answer with status ${status} is documented`]
  const validate = openapi.validator(pointer)
  if (validate(body)) return []
  return (validate.errors ?? []).map(
    (error) => `${method} ${template} ${status}: ${error.instancePath} ${error.message}`,
  )
}

function asNode(value: unknown): Node {
  if (typeof value !== 'object' || value === null) throw new Error('openapi.yaml: an object was due')
  return value as Node
}

function escapePointer(text: string): string {
  return text.replaceAll('~', '~0').replaceAll('/', '~1')
}
