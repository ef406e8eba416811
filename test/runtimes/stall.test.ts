import { describe, expect, onTestFinished, test } from 'vitest'
import { createSite } from '../faults/process/start.ts'
import { inForm } from '../form.ts'
import type { ServerRuntime } from './targets.ts'

const runtimes = inForm<readonly ServerRuntime[]>({ real: ['node24'], full: ['node24', 'bun', 'deno'] })

describe.each(runtimes)('on %s', (runtime) => {
  test('a process that SIGSTOP froze for more than three seconds emits a stalled gap', async () => {
    const startedMs = Date.now()
    const site = createSite(runtime, { handlerMs: 0 })
    const target = await site.start()
    onTestFinished(async () => void (await target.stop()))
    const stoppedMs = Date.now()
    target.kill('SIGSTOP')
    await new Promise((resolve) => setTimeout(resolve, 3_500))
    const continuedMs = Date.now()
    target.kill('SIGCONT')
    await target.line(/^gap stalled/)
    const reportedMs = Date.now()
    const gaps = site.journal().gaps.filter(({ reason }) => reason === 'stalled')
    expect(gaps).toHaveLength(1)
    const [{ fromMs, toMs, vin } = { fromMs: Infinity, toMs: 0, vin: 'none' }] = gaps
    expect(vin).toBeUndefined()
    expect(fromMs).toBeLessThanOrEqual(stoppedMs)
    expect(fromMs).toBeGreaterThanOrEqual(startedMs)
    // The gap goes on for three seconds: connections that waited too long fill the queue of the kernel.
    expect(toMs).toBeGreaterThanOrEqual(continuedMs + 3_000)
    expect(toMs).toBeLessThanOrEqual(reportedMs)
    await target.line(/the process stood still, and messages may be missing/)
  })
})
