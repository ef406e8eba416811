import { vi } from 'vitest'

/** Waits until the check holds. A machine with other work to do needs longer than the default of a second. */
export const soon = <Found>(check: () => Found | Promise<Found>, ms: number = 60_000): Promise<Found> =>
  vi.waitFor(check, { timeout: ms, interval: 20 })
