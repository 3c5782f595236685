import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** An empty directory, removed after the test that asks for it. */
export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'survey-auth-store-'))
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}
