// What a script gets of commands that succeed. cron mails every line, and nobody reads mails about what went well.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { createProcess } from '../harness/process.js'

const PASSWORD = { input: 'correct horse battery\n' }
const answer = { answer_id: 1, ended_at: 1_767_225_600, answer: [] }

test('a command that succeeds without a terminal says what it did on stdout, and nothing on stderr', async () => {
  const service = await createProcess()
  const file = (name: string, records: readonly unknown[]) => {
    writeFileSync(path.join(service.dataDir, name), records.map((record) => `${JSON.stringify(record)}\n`).join(''))
    return name
  }
  const users = file('users.ndjson', [{ username: 'ann' }, { username: 'bob' }])
  const surveys = file('surveys.json', [{ id: 7, title: 'A', pages: [] }])
  const answers = file('answers.ndjson', [answer])
  const said: string[] = []
  const run = async (words: string, options = {}) => {
    const { exitCode, stdout, stderr } = await service.run(words.split(' '), options)
    if (exitCode !== 0 || stderr !== '') said.push(`${words}: ${exitCode}, ${stderr}`)
    return stdout
  }
  await run('migrate')
  const { appid, secret } = JSON.parse(await run('app create --name A --redirect-uri https://a.example/cb --json'))
  expect(secret).toMatch(/^sas_/)
  const { secret_id } = JSON.parse(await run(`app secret add ${appid} --name second --json`))
  for (const empty of ['grant list', 'user list', 'user hashes']) expect(await run(empty)).toBe('')
  expect(await run(`user import ${users} --dry-run`)).toMatch(/^dry_run +yes$/m)
  await run(`user import ${users}`)
  await run('user create --username eve --password-stdin', PASSWORD)
  expect(await run('user set-password eve --password-stdin', PASSWORD)).toBe('username  eve\n')
  expect(await run('user sign-out eve')).toBe('sessions  0\n')
  const identity = '--provider corp --subject 4711'
  expect(await run(`user link eve ${identity}`)).toBe('provider  corp\nsubject   4711\n')
  expect(await run(`user unlink ${identity}`)).toMatch(/^user_id +user_/m)
  await run(`survey import ${surveys} --owner eve --dry-run`)
  await run(`survey import ${surveys} --owner eve`)
  await run(`survey answers import ${answers} --survey 7`)
  expect(await run('survey answers export --survey 7')).toContain('"answer_id":1')
  expect(await run('survey answers delete --all --survey 7')).toMatch(/^deleted +1$/m)
  expect(await run('survey answers export --survey 7')).toBe('')
  expect(await run('survey delete 7')).toBe('SURVEY_ID\n7\n')
  expect(await run('survey delete 7')).toBe('SURVEY_ID\n7\n')
  expect(await run('survey list')).toBe('')
  for (const already of [false, true]) {
    expect(await run(`app secret revoke ${appid} ${secret_id}`), String(already)).toContain(secret_id)
  }
  expect(await run(`grant revoke --appid ${appid} --dry-run`)).toBe('found    0\nrevoked  0\n')
  expect(await run(`grant revoke --appid ${appid}`)).toBe('found    0\nrevoked  0\n')
  await run('user disable eve')
  await run('user delete eve')
  await run('audit list')
  await run('backup backup.tar')
  await run('doctor')
  expect(said).toEqual([])
})
