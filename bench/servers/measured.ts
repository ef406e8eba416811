/** What a measured server says to whoever started it. */
export type Report =
  | { readonly port: number }
  | { readonly began: true }
  | { readonly cpuMicroseconds: number; readonly handled: number | undefined }

/**
 * Says over IPC where this process listens, and answers `begin` and `end` with the CPU time it took between them, in user
 * and kernel mode, all threads together. `handled` counts what its handler has seen since it began.
 */
export function measured(port: number, handled?: () => number): void {
  let cpu = process.cpuUsage()
  let before = 0
  const say = (report: Report): void => void process.send?.(report)
  process.on('message', (question) => {
    if (question === 'begin') {
      cpu = process.cpuUsage()
      before = handled?.() ?? 0
      say({ began: true })
    } else {
      // Handlers come after the last answer, and count.
      setTimeout(() => {
        const { user, system } = process.cpuUsage(cpu)
        say({ cpuMicroseconds: user + system, handled: handled && handled() - before })
      }, 20)
    }
  })
  process.on('disconnect', () => process.exit())
  say({ port })
}
