import type { Format } from '../../../src/events/event.ts'
import type { SimulatedMessage } from '../../../src/service/fleet/messages.ts'
import { encode } from '../../../src/wire/encode.ts'
import { colorsFor } from '../colors.ts'
import { fleetMessages } from './fleet-messages.ts'
import type { SendOptions } from './options.ts'
import { pace } from './pace.ts'
import { createPoster } from './post.ts'
import { showProgress } from './progress.ts'
import { resultOf, type Stopped } from './result.ts'
import { summary } from './summary.ts'
import { createTally } from './tally.ts'

// So many network errors in a row from the very first message on, and nobody is there.
const hopeless = 20

/** Sends, shows how it goes, prints what came of it. Resolves to the exit status: 0 when everything was accepted. */
export async function run(options: SendOptions): Promise<number> {
  const { startAt, messages } = fleetMessages(options, Date.now())
  const tally = createTally()
  const poster = createPoster(options)
  let stopped: Stopped | undefined

  const send = async ({ message: { event }, format }: Turn): Promise<void> => {
    const outcome = await poster.post(JSON.stringify(encode(event, format)), format)
    tally.count(event.topic, format, outcome)
    if (tally.total.failed === tally.total.sent && tally.total.sent >= hopeless) stop('unreachable')
  }
  const sending = pace({
    ...options,
    messages: inTurns(messages, options.formats),
    laneOf: ({ message }) => message.event.vin,
    send,
  })
  const stop = (why: Stopped): void => {
    stopped ??= why
    sending.stop()
  }
  const interrupt = (): void => {
    // Once lets what is in flight be answered; twice ends at once.
    if (stopped === 'interrupted') process.exit(130)
    stop('interrupted')
  }
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt)
  const progress =
    options.output === 'progress' ? showProgress({ options, tally, pace: sending }, process.stderr) : undefined

  await sending.done
  progress?.end()
  poster.close()
  process.off('SIGINT', interrupt).off('SIGTERM', interrupt)

  const result = resultOf(options, startAt, tally, sending.pacing(), stopped)
  const { stdout } = process
  const text =
    options.output === 'json'
      ? `${JSON.stringify(result, undefined, 2)}\n`
      : summary(result, options, colorsFor(stdout), Math.min(stdout.columns ?? 100, 100))
  stdout.write(text)
  return result.refused + result.failed > 0 || stopped === 'unreachable' ? 1 : 0
}

interface Turn {
  readonly message: SimulatedMessage
  readonly format: Format
}

function* inTurns(messages: Iterator<SimulatedMessage>, formats: readonly Format[]): Generator<Turn, void, undefined> {
  for (let turn = 0; ; turn++) {
    const next = messages.next()
    const format = formats[turn % formats.length]
    if (next.done || format === undefined) return
    yield { message: next.value, format }
  }
}
