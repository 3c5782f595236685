import { execFileSync } from 'node:child_process'
import { BUILD } from './spawn.js'

const DIST = new URL('../../dist/', import.meta.url).href

/**
 * The most by which twenty runs of `work` grow the old generation, in MB, although none of its objects need live on: what
 * young-generation collections could not free. Objects that are in use from the beginning are promoted first, as happens
 * in time. Runs in a process of its own, since the heap of other tests would count.
 * @param script a module that declares `work`; `dist` is the address of the compiled program
 */
export function mostKeptMB(script: string): number {
  execFileSync(process.execPath, [BUILD], { stdio: 'inherit' })
  const measure = `
    import { getHeapSpaceStatistics } from 'node:v8'
    const dist = '${DIST}'
    ${script}
    const keptMB = () => getHeapSpaceStatistics().find((space) => space.space_name === 'old_space').space_used_size / 1e6
    await work()
    gc()
    const before = keptMB()
    let most = 0
    for (let n = 0; n < 20; n++) {
      await work()
      most = Math.max(most, keptMB() - before)
    }
    console.log(most)
    process.exit()`
  return Number(
    execFileSync(process.execPath, ['--expose-gc', '--input-type=module', '--eval', measure], { encoding: 'utf8' }),
  )
}
