/** A wait for what still comes: its part of the time that a commit takes without news ends it, and that time altogether. */
const quietPart = 0.05

/**
 * Runs `ready` when no more has come for a while, reckoned by how long a commit takes. What comes over many connections comes
 * one after another while the loop is free, and what misses a commit waits for two.
 */
export function whenQuiet(count: () => number, commitMs: number, ready: () => void): void {
  const startedAt = performance.now()
  let grownAt = startedAt
  let known = count()
  setImmediate(function look() {
    const now = performance.now()
    if (count() > known) {
      known = count()
      grownAt = now
    }
    const isQuiet = now - grownAt >= commitMs * quietPart
    if (isQuiet || now - startedAt >= commitMs) ready()
    else setImmediate(look)
  })
}
