import type { FieldValues } from 'fleethook'
import { expect } from 'vitest'

/** A template that stores episodes, as it runs. */
export interface StoringTemplate {
  /** The values that begin and end one of its episodes. */
  readonly on: FieldValues
  readonly off: FieldValues
  /** Posts a message, by seconds of the vehicle's clock. */
  say(second: number, data: FieldValues): Promise<void>
  /** All that it has stored, by start. */
  stored(): Promise<readonly Stored[]>
  /** What its user sees of that: the minutes of each episode, by start. */
  shown(): Promise<readonly number[]>
  /** Writes to its database, as the handler of a newer revision would. */
  write(change: 'revision = 99'): Promise<void>
}

interface Stored {
  readonly revision: number
  readonly revoked: boolean
}

/**
 * The replay of a dead letter can tell an older revision after a newer one. So each template that stores episodes writes only a larger one,
 * and keeps one that was revoked as a row that says so: otherwise it would be there again.
 */
export async function expectOnlyLargerRevisions({
  on,
  off,
  say,
  stored,
  shown,
  write,
}: StoringTemplate): Promise<void> {
  /** Resolves to the revisions, by start. */
  const told = async (revoked: readonly boolean[], minutes: readonly number[]): Promise<readonly number[]> => {
    await expect.poll(async () => (await stored()).map((one) => one.revoked)).toEqual(revoked)
    await expect.poll(shown).toEqual(minutes)
    return (await stored()).map(({ revision }) => revision)
  }
  await say(-60, off)
  await say(0, on)
  await say(300, off)
  await say(2_000, on)
  await say(2_300, off)
  await say(6_000, off)
  const [one = Infinity, other = Infinity] = await told([false, false], [5, 5])

  // It went on after the first end, so the second one is part of it.
  await say(310, on)
  for (const later of [6_200, 6_400]) await say(later, off)
  const [corrected, revoked] = await told([false, true], [2_300 / 60])
  expect(corrected).toBeGreaterThan(one)
  expect(revoked).toBeGreaterThan(other)

  // A newer revision of both is there, and then an older one comes.
  await write('revision = 99')
  await say(2_240, off)
  for (const later of [6_600, 6_800]) await say(later, off)
  // It is handled when the next one is there.
  await say(8_000, on)
  await say(8_600, off)
  await say(13_000, off)
  expect(await told([false, true, false], [2_300 / 60, 10])).toEqual([99, 99, expect.any(Number)])
}
