// Every released schema is opened by the current program. After a new migration:
//   MAKE_FIXTURE=0.2.0 npx vitest run --project "one process" test/store/schema-fixtures.test.ts
// writes test/store/fixtures/0.2.0, named after the version that will have it. Existing fixtures never change.
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { Database } from '../../services/sqlite/driver.js'
import { surveySchema as surveyPostgres } from '../../services/survey/store/postgres/schema.js'
import { surveySchema as surveySqlite } from '../../services/survey/store/sqlite/schema.js'
import { tokenSchema as tokenPostgres } from '../../services/token/store/postgres/schema.js'
import { tokenSchema as tokenSqlite } from '../../services/token/store/sqlite/schema.js'
import { Clock } from '../harness/clock.js'
import { smallSurvey } from '../harness/sample-surveys.js'
import { tokensOf, type Verbs } from '../harness/verbs.js'
import { openService } from '../harness.js'
import { query } from '../postgres/cluster.js'
import { createDatabase } from '../postgres/shared-cluster.js'
import {
  ENGINES,
  type Engine,
  type Fixture,
  fill,
  fixtures,
  loadFiles,
  postgresText,
  sqliteText,
  type Texts,
  writeFixture,
} from './schema-fixtures.js'
import { temporaryDirectory } from './temporary-directory.js'

const NEWEST = { tokenSqlite, surveySqlite, tokenPostgres, surveyPostgres }

/** An empty place for the databases of a service. */
interface Place {
  readonly dataDir: string
  readonly url: string
  open(engine: Engine): Promise<Verbs>
}

/** `url` is empty if only SQLite is needed. */
async function newPlace(engines: readonly Engine[] = ENGINES): Promise<Place> {
  const [dataDir, url] = [temporaryDirectory(), engines.includes('postgres') ? await createDatabase() : '']
  const urls = { TOKEN_DATABASE_URL: url, SURVEY_DATABASE_URL: url }
  return {
    dataDir,
    url,
    open: (engine) => openService({ place: { dataDir, clock: new Clock() }, env: engine === 'postgres' ? urls : {} }),
  }
}

/** Makes the databases of the fixture in a place. */
async function load({ dataDir, url }: Place, texts: Texts): Promise<void> {
  loadFiles(dataDir, texts)
  if (url !== '') await query(url, texts['postgres.sql'])
}

/** The version of each schema. */
async function versionsIn({ dataDir, url }: Place): Promise<Record<keyof typeof NEWEST, number>> {
  const ofFile = (name: string) => {
    const db = new Database(join(dataDir, name), { readonly: true })
    const version = Number(db.pragma('user_version', { simple: true }))
    db.close()
    return version
  }
  const rows = await query(url, 'SELECT name, version FROM schema_versions')
  const versions = new Map(rows.map(({ name, version }) => [name, Number(version)]))
  return {
    tokenSqlite: ofFile('token.db'),
    surveySqlite: ofFile('survey.db'),
    tokenPostgres: versions.get('token') ?? 0,
    surveyPostgres: versions.get('survey') ?? 0,
  }
}

/** Tables, columns, indexes and constraints, whichever migrations made them. */
async function structureOf({ dataDir, url }: Place): Promise<unknown> {
  const ofFile = (name: string) => {
    const db = new Database(join(dataDir, name), { readonly: true })
    const columns = db
      .prepare(
        `SELECT t.name AS tab, t.strict, t.wr, c.name, c.type, c."notnull", c.dflt_value, c.pk
         FROM pragma_table_list t, pragma_table_xinfo(t.name) c WHERE t.name NOT LIKE 'sqlite%' ORDER BY tab, c.name`,
      )
      .all()
    const indexes = db.prepare(`SELECT sql FROM sqlite_schema WHERE type = 'index' ORDER BY name`).pluck().all()
    db.close()
    return { columns, indexes }
  }
  const schema = `relnamespace = 'public'::regnamespace`
  return {
    token: ofFile('token.db'),
    survey: ofFile('survey.db'),
    columns: await query(
      url,
      `SELECT table_name, column_name, udt_name, is_nullable, column_default, collation_name
       FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2`,
    ),
    indexes: await query(url, `SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`),
    constraints: await query(
      url,
      `SELECT relname, conname, pg_get_constraintdef(c.oid) AS def FROM pg_constraint c JOIN pg_class t ON t.oid = conrelid
       WHERE ${schema} ORDER BY 1, 2`,
    ),
    storage: await query(
      url,
      `SELECT relname, relpersistence, reloptions FROM pg_class WHERE relkind = 'r' AND ${schema} ORDER BY 1`,
    ),
  }
}

/** That of new databases. */
let newest: Promise<unknown> | undefined

async function structureOfNew(): Promise<unknown> {
  const place = await newPlace()
  await migrateIn(place)
  return structureOf(place)
}

async function migrateIn(place: Place): Promise<void> {
  for (const engine of ENGINES) await (await place.open(engine)).backend.close()
}

const { MAKE_FIXTURE: name = '' } = process.env

if (name)
  test('a fixture is made', async () => {
    const place = await newPlace()
    const filled = async (engine: Engine) => {
      const service = await place.open(engine)
      try {
        return await fill(service)
      } finally {
        await service.backend.close()
      }
    }
    const holdings = { sqlite: await filled('sqlite'), postgres: await filled('postgres') }
    const ofFile = (file: string) => sqliteText(join(place.dataDir, file))
    const texts = {
      'token.db.sql': ofFile('token.db'),
      'survey.db.sql': ofFile('survey.db'),
      'postgres.sql': await postgresText(place.url),
    }
    writeFixture({ name, texts, holdings })
  })

test('there is a fixture of every version of every schema', async () => {
  const seen: Record<keyof typeof NEWEST, number>[] = []
  for (const { texts } of fixtures()) {
    const place = await newPlace()
    await load(place, texts)
    seen.push(await versionsIn(place))
  }
  for (const schema of Object.keys(NEWEST) as (keyof typeof NEWEST)[]) {
    for (const { version } of NEWEST[schema].migrations) {
      const advice = `no fixture has ${schema} version ${version}: make one, as the top of this file says`
      expect(
        seen.some((versions) => versions[schema] === version),
        advice,
      ).toBe(true)
    }
  }
})

describe.each(fixtures())('the databases of $name', ({ texts, holdings }: Fixture) => {
  test('are migrated to the newest schema, the same that a new database gets', async () => {
    const old = await newPlace()
    await load(old, texts)
    await migrateIn(old)
    const known = Object.entries(NEWEST).map(([schema, { migrations }]) => [schema, migrations.length])
    expect(await versionsIn(old)).toEqual(Object.fromEntries(known))
    newest ??= structureOfNew()
    expect(await structureOf(old)).toEqual(await newest)
  })

  async function openLoaded(engine: Engine): Promise<Verbs> {
    const place = await newPlace([engine])
    await load(place, texts)
    const service = await place.open(engine)
    onTestFinished(() => service.backend.close())
    return service
  }

  test.each(ENGINES)('on %s stay usable: tokens, codes, revocations, passwords and surveys', async (engine) => {
    const service = await openLoaded(engine)
    const { good, revoked, unusedCode, usedCode, surveys } = holdings[engine]
    expect((await service.user(good)).data.nickname).toBe('李伟')
    expect((await service.refresh(good.app, good.tokens.refresh_token)).code).toBe('OK')
    const list = (await service.surveys(good)).data.list as { id: number; title: string }[]
    expect(list.map(({ id, title }) => ({ id, title }))).toEqual(surveys)
    for (const { id, title } of surveys) expect((await service.survey(good, id)).data.title).toBe(title)

    expect(tokensOf(await service.exchange(good.app, unusedCode)).openid).toBe(good.tokens.openid)
    expect((await service.exchange(good.app, usedCode)).type).toBe('invalid_code')
    expect((await service.user(revoked)).type).toBe('invalid_token')
    expect((await service.refresh(revoked.app, revoked.tokens.refresh_token)).type).toBe('invalid_refresh_token')

    const again = await service.grantAccess({ app: good.app, user: good.user }) // signs in with the password
    expect(again.tokens.openid).toBe(good.tokens.openid)
  })

  test.each(ENGINES)('on %s accept new apps, users and surveys', async (engine) => {
    const service = await openLoaded(engine)
    const { surveys } = holdings[engine]
    const access = await service.grantAccess()
    expect((await service.user(access)).code).toBe('OK')
    const [id = 0] = await service.importSurveys(access.user, [smallSurvey('三')])
    expect(id).toBeGreaterThan(Math.max(...surveys.map((survey) => survey.id)))
  })
})
