import { encode } from '../wire/encode.ts'
import type { Conformance } from './inbox-conformance.ts'
import { message } from './message.ts'
import { authorizationOf, defaultPatienceMs, posting } from './post.ts'
import type { HandledEvent, ReceiverUnderTest } from './receiver-conformance.ts'

/** An answer may take this part of the time until the handler is done. Compared, for no machine is as fast as another. */
const answeredBy = 0.5
const tries = 3

/** That answers leave before handlers are done, for the vehicles whose handlers take long. */
export function slowChecks(
  subject: ReceiverUnderTest,
  events: () => Promise<readonly HandledEvent[]>,
): readonly Conformance[] {
  const { patienceMs = defaultPatienceMs } = subject
  const post = posting(subject)
  const count = async (vin: string): Promise<number> => (await events()).filter((event) => event.vin === vin).length

  /** How much of the time until its handler was done a message waited for its answer. */
  async function waited(vin: string): Promise<number> {
    const before = await count(vin)
    const body = JSON.stringify(encode(message.state('online', { vin }), 'service'))
    const postedAt = performance.now()
    const { status } = await post({ body, headers: { authorization: authorizationOf(subject.secret, 'service') } })
    const answerMs = performance.now() - postedAt
    if (status !== 200) throw new Error(`Expected the answer 200 and got ${status}.`)
    while ((await count(vin)) === before) {
      if (performance.now() - postedAt > patienceMs)
        throw new Error(`The handler was not done within ${patienceMs} ms.`)
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    return answerMs / (performance.now() - postedAt)
  }

  return (subject.slowVins ?? []).map((vin) => ({
    name: `The answer does not wait for the slow handler of ${vin}`,
    async run() {
      const parts: number[] = []
      while (parts.length < tries) {
        const part = await waited(vin)
        if (part < answeredBy) return
        parts.push(Math.round(part * 100))
      }
      throw new Error(
        `Of the time until the handler was done, ${tries} answers took ${parts.join(' %, ')} %; less than ${answeredBy * 100} % was expected.`,
      )
    },
  }))
}
