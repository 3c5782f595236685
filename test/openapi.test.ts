import { describe, expect, test } from 'vitest'
import { apiRoutes } from '../gateway/routes.js'
import { ERRORS } from './harness/errors.js'
import { loadOpenApi } from './harness/openapi.js'

// harness/envelope.ts checks every live answer of the black-box suites against this document; here the document is checked.

const openapi = loadOpenApi()

/** Every object in the document with its JSON pointer. */
function* nodes(node: unknown, pointer = ''): Generator<{ pointer: string; node: Readonly<Record<string, unknown>> }> {
  if (typeof node !== 'object' || node === null) return
  if (!Array.isArray(node)) yield { pointer, node: node as Readonly<Record<string, unknown>> }
  for (const [key, child] of Object.entries(node)) {
    yield* nodes(child, `${pointer}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`)
  }
}

describe('docs/api/openapi.yaml', () => {
  test('is OpenAPI 3.1 and describes exactly the routes of the API', () => {
    expect(openapi.document.openapi).toMatch(/^3\.1\./)
    const documented = openapi.paths.map((path) => path.replace(/\{[^}]+\}/g, ':id'))
    expect(documented.filter((path) => path.startsWith('/api/')).sort()).toEqual(
      apiRoutes.map(({ path }) => path).sort(),
    )
  })

  test('has no $ref that leads nowhere', () => {
    for (const { pointer, node } of nodes(openapi.document)) {
      if (typeof node.$ref !== 'string') continue
      expect(node.$ref, pointer).toMatch(/^#\//)
      expect(openapi.at(node.$ref.slice(1)), `${pointer} → ${node.$ref}`).toBeDefined()
    }
  })

  test('has only schemas that compile', () => {
    const schemas = Object.keys(openapi.at('/components/schemas') ?? {})
    expect(schemas.length).toBeGreaterThan(3)
    for (const name of schemas) expect(openapi.validator(`/components/schemas/${name}`)).toBeTypeOf('function')
  })

  test('has only examples that are valid', () => {
    for (const { pointer, node } of nodes(openapi.document)) {
      if (!('schema' in node)) continue
      const examples = [
        node.example,
        ...Object.values((node.examples ?? {}) as Record<string, { value?: unknown }>).map(
          (example) => resolved(example).value,
        ),
      ]
      for (const example of examples.filter((value) => value !== undefined)) {
        const validate = openapi.validator(`${pointer}/schema`)
        expect(validate(example) ? [] : validate.errors, pointer).toEqual([])
      }
    }
  })

  test('has an operationId of its own, a summary and a description of every parameter', () => {
    const ids = openapi.paths.map((path) => {
      const operation = openapi.at(`/paths/${path.replaceAll('/', '~1')}/get`) as Readonly<Record<string, unknown>>
      expect(operation.summary, path).toMatch(/\S/)
      for (const parameter of (operation.parameters ?? []) as Readonly<Record<string, unknown>>[]) {
        expect(resolved(parameter).description, `${path} ${JSON.stringify(parameter)}`).toMatch(/\S/)
      }
      return operation.operationId
    })
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('names every error.type of the table', () => {
    const text = JSON.stringify(openapi.document)
    for (const type of Object.keys(ERRORS)) expect(text).toContain(type)
  })
})

function resolved<T extends object>(node: T): T {
  const target = (node as Readonly<Record<string, unknown>>).$ref
  return typeof target === 'string' ? (openapi.at(target.slice(1)) as T) : node
}
