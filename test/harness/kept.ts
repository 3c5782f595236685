import { execFileSync } from 'node:child_process'
import { BUILD } from './spawn.js'

const DIST = new URL('../../dist/', import.meta.url).href

/**
 * What `work` adds at most to what lives long when it is done twenty times, in MB, although nothing of it need live: what
 * the quick collector could not let go of. What is under way at the beginning is made to live long first, as it happens in
 * time. In a process of its own, since the heap of other tests would count.
 * @param script a module that declares `work`; `dist` is where the compiled program lies
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
