// What a numbered test of the kit is. core-tests.ts and answers-tests.ts hold them, a table for each profile.
import type { Fixtures } from './fixtures.js'
import type { Probe } from './probe.js'

export interface KitTest {
  /** `SP-07`; once given, it never means another test. Also its heading in docs/provider-conformance.md. */
  readonly id: string
  /** A sentence that is true of a conformant provider. */
  readonly title: string
  /** What goes wrong for whom if it is not. */
  readonly why: string
  /** Run many times, also at once with itself. @throws Wrong */
  run(probe: Probe, fixtures: Fixtures): Promise<void>
}
