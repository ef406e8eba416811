import { afterAll, beforeAll, expect } from 'vitest'

/** Fails the file when a case leaves a rejection that nobody handles, or reaches the prototype of objects. */
export function expectNoLeftovers(): void {
  const unhandled: unknown[] = []
  const note = (reason: unknown): void => void unhandled.push(reason)
  beforeAll(() => {
    process.on('unhandledRejection', note)
    process.on('uncaughtException', note)
  })
  afterAll(async () => {
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', note)
    process.off('uncaughtException', note)
    expect(unhandled).toEqual([])
    expect(Object.keys(Object.prototype)).toEqual([])
  })
}
