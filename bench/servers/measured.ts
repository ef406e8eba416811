import type { monitorEventLoopDelay } from 'node:perf_hooks'

/** What a server used. */
export interface Taken {
  readonly cpuMicroseconds: number
  readonly handled: number | undefined
  /** The delay of timers on the event loop, in milliseconds. */
  readonly loopDelayP99Ms: number | undefined
}

/** What a measured server reports to the process that started it. */
export type Report = { readonly port: number } | { readonly began: true } | Taken

/**
 * Reports over IPC where this process listens, and answers `begin` and `end` with the CPU time that it used between them, in user
 * and kernel mode, all threads together. `handled` counts what its handler has seen since it began.
 */
export function measured(
  port: number,
  handled?: () => number,
  loopDelay?: ReturnType<typeof monitorEventLoopDelay>,
): void {
  let cpu = process.cpuUsage()
  let before = 0
  const say = (report: Report): void => void process.send?.(report)
  process.on('message', (question) => {
    if (question === 'begin') {
      cpu = process.cpuUsage()
      before = handled?.() ?? 0
      loopDelay?.reset()
      say({ began: true })
    } else {
      // Handlers run after the last answer, and are part of the cost.
      setTimeout(() => {
        const { user, system } = process.cpuUsage(cpu)
        say({
          cpuMicroseconds: user + system,
          handled: handled && handled() - before,
          // Its own resolution is part of what it says.
          loopDelayP99Ms: loopDelay && loopDelay.percentile(99) / 1e6 - 1,
        })
      }, 20)
    }
  })
  process.on('disconnect', () => process.exit())
  say({ port })
}
