import type { Format } from '../../../src/events/event.ts'
import { createFleet } from '../../../src/service/fleet/fleet.ts'
import { type SimulatedMessage, wireMessage } from '../../../src/service/fleet/messages.ts'
import { colorsFor } from '../terminal.ts'
import { pace } from './pace.ts'
import { createPoster, type SendOptions } from './post.ts'
import { showProgress, summary } from './report.ts'
import { resultOf, type StopReason, Tally } from './tally.ts'

/** If this many messages at the start all fail, nothing listens at the address. */
const hopeless = 20

/** Sends, shows the progress, prints the summary. Resolves to the exit status: 0 when everything was accepted. */
export async function run(options: SendOptions): Promise<number> {
  const startAt = options.startAt ?? wakesUpAt(options, Date.now())
  const tally = new Tally()
  const poster = createPoster(options)
  let stopped: StopReason | undefined

  const send = async ({ message: { event }, format }: FormattedMessage): Promise<void> => {
    const outcome = await poster.post(JSON.stringify(wireMessage(event, format)), format)
    tally.count(event.topic, format, outcome)
    if (tally.total.failed === tally.total.sent && tally.total.sent >= hopeless) stop('unreachable')
  }
  const sending = pace({
    ...options,
    messages: inTurns(simulated(options, startAt), options.formats),
    laneOf: ({ message }) => message.event.vin,
    send,
  })
  const stop = (why: StopReason): void => {
    stopped ??= why
    sending.stop()
  }
  const interrupt = (): void => {
    // The first Ctrl+C waits for answers, the second ends at once.
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

interface FormattedMessage {
  readonly message: SimulatedMessage
  readonly format: Format
}

function* inTurns(
  messages: Iterator<SimulatedMessage>,
  formats: readonly Format[],
): Generator<FormattedMessage, void, undefined> {
  for (let turn = 0; ; turn++) {
    const next = messages.next()
    const format = formats[turn % formats.length]
    if (next.done || format === undefined) return
    yield { message: next.value, format }
  }
}

/** The number of messages that are simulated to find out how early the fleet must wake up. */
const lookAhead = 200_000

/**
 * When the rate is higher than these vehicles would send on their own, their time passes faster than ours. The fleet then wakes up
 * in the past, so that its last message is from now and none is from the future.
 */
function wakesUpAt(options: SendOptions, now: number): number {
  const sendingMs = (1_000 * Math.min(options.count, lookAhead)) / options.ratePerSecond
  return now - Math.max(0, fleetMs(options, now) - sendingMs)
}

function fleetMs(options: SendOptions, startAt: number): number {
  if (!Number.isFinite(options.count)) return 0
  let last = startAt
  let seen = 0
  for (const { at } of simulated(options, startAt)) {
    last = at
    if (++seen >= Math.min(options.count, lookAhead)) break
  }
  return last - startAt
}

function* simulated(
  { vins, seed, topics }: SendOptions,
  startAt: number,
): Generator<SimulatedMessage, void, undefined> {
  for (const message of createFleet({ vins, seed, startAt, firmware: 'mixed' })) {
    if (topics.includes(message.event.topic)) yield message
  }
}
