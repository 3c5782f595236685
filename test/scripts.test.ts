// The scripts of package.json that take options list them, and do nothing when called with unknown ones.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { beforeAll, describe, expect, test } from 'vitest'

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> }
const withOptions = Object.entries(scripts).filter(([name]) => /^(bench|trace|test:)/.test(name))

function run(script: string, ...args: string[]) {
  return spawnSync(process.execPath, [...script.split(' ').slice(1), ...args], { encoding: 'utf8' })
}

describe.each(withOptions)('npm run %s', (name, script) => {
  const usage = `npm run ${name} -- [options]\n\n  --`

  let help: ReturnType<typeof run>
  beforeAll(() => {
    help = run(script, '--help')
  })

  test('shows its options', () => {
    expect(help.status).toBe(0)
    expect(help.stdout).toContain(usage)
  })

  test('refuses an unknown option', () => {
    const { status, stdout, stderr } = run(script, '--nonsense')
    expect([status, stdout]).toEqual([2, ''])
    expect(stderr).toContain("'--nonsense'")
    expect(stderr).toContain(usage)
  })

  test('refuses a value that is not a number where one is expected', () => {
    const [option = ''] = /--\S+ N/.exec(help.stdout) ?? []
    const { status, stderr } = run(script, option.replace(/ N.*/, '=many'))
    expect(status).toBe(2)
    expect(stderr).toContain(`${option.split(' ')[0]} `)
  })
})
