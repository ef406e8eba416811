/* A receiver of `facts-receiver.ts` in this process, on a clock of the test. */
import type { ReceiverOptions } from 'fleethook'
import type { InboxFactory } from 'fleethook/extend'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { expect } from 'vitest'
import { factsReceiver, type FactsSettings, type Noted, type Question } from './facts-receiver.ts'
import { askedBy, type FactsPlace } from './facts-rows.ts'
import { silent, unwatched } from './scene.ts'

/** A clock that can jump over what is due, as if the process had slept. */
function jumping(startMs: number): FakeClock & { jump(ms: number): void } {
  const clock = unwatched(fakeClock(startMs))
  let jumpedMs = 0
  return { ...clock, now: () => clock.now() + jumpedMs, jump: (ms) => void (jumpedMs += ms) }
}

export async function placeHere(settings: FactsSettings, startMs: number, inbox: InboxFactory): Promise<FactsPlace> {
  const clock = jumping(startMs)
  const noted: Noted[] = []
  const options: ReceiverOptions = { secret: false, clock, log: silent, inbox }
  const receiver = factsReceiver(settings, options, (each) => void noted.push(each))
  await receiver.open()
  const ask = async <Answer>(question: Question): Promise<Answer> => {
    const answer = await receiver.ask(question)
    await clock.advance(0)
    return answer as Answer
  }
  return {
    ...askedBy(ask),
    startMs,
    now: clock.now,
    async pass(ms, isAsleep = false) {
      if (isAsleep) clock.jump(ms)
      else await clock.advance(ms)
    },
    async eventually(read, expected) {
      // What is told of an episode has waited for its values.
      for (let minutes = 0; minutes < 4; minutes += 1) {
        await clock.advance(0)
        if (isSame(await read(), expected)) return
        await clock.advance(60_000)
      }
      expect(await read()).toEqual(expected)
    },
    async send(body) {
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
      await clock.advance(0)
    },
    told: (vin, ...rules) => noted.filter((each) => each.vin === vin && rules.includes(each.rule)),
    async [Symbol.asyncDispose]() {
      await receiver.drain()
    },
  }
}

function isSame(one: unknown, other: unknown): boolean {
  try {
    expect(one).toEqual(other)
    return true
  } catch {
    return false
  }
}
