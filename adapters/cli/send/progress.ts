import type { WriteStream } from 'node:tty'
import { createLogUpdate } from 'log-update'
import { colorsFor, type Colors } from '../colors.ts'
import { shownUrl, type SendOptions } from './options.ts'
import type { Pace } from './pace.ts'
import type { Tally } from './tally.ts'
import { duration, failureHint, grouped, perSecond, span } from './words.ts'

/** What is shown while messages are sent. */
export interface Progress {
  /** Takes the display away. The lines of a stream that is no terminal stay. */
  end(): void
}

/** What there is to show. */
export interface Shown {
  readonly options: SendOptions
  readonly tally: Tally
  readonly pace: Pace
}

/** A live display on a terminal; on anything else a line every two seconds. */
export function showProgress(shown: Shown, stream: WriteStream): Progress {
  const colors = colorsFor(stream)
  const rate = recentRate(shown)
  stream.write(`${headline(shown.options, colors)}\n`)
  if (!stream.isTTY) {
    const timer = setInterval(() => stream.write(`${line(shown, rate())}\n`), 2_000)
    return { end: () => clearInterval(timer) }
  }
  const display = createLogUpdate(stream)
  const paint = (): void => display(`\n${block(shown, rate(), colors, Math.min(stream.columns, 100))}`)
  paint()
  const timer = setInterval(paint, 100)
  return {
    end() {
      clearInterval(timer)
      paint()
      display.clear()
      display.done()
    },
  }
}

function headline(options: SendOptions, colors: Colors): string {
  const { secret, formats, topics, vins, seed, ratePerSecond } = options
  const what = [
    `${grouped(vins)} ${vins === 1 ? 'vehicle' : 'vehicles'}`,
    formats.length === 1 ? `format ${formats[0]}` : 'all formats',
    topics.length === 6 ? 'all topics' : `only ${topics.join(', ')}`,
    perSecond(ratePerSecond),
    `seed ${seed}`,
    ...(secret === undefined ? ['no secret given'] : []),
  ]
  return `${colors.bold('fleethook send')} ${colors.dim('→')} ${colors.cyan(shownUrl(options))}\n${colors.dim(what.join(' · '))}`
}

function line({ options, tally, pace }: Shown, recentPerSecond: number): string {
  const { sent, accepted, refused, failed } = tally.total
  const ack = tally.ackMs()
  return [
    `${span(pace.pacing().elapsedMs)}: ${grouped(sent)}${isFinite(options.count) ? ` of ${grouped(options.count)}` : ''} sent`,
    `${grouped(accepted)} accepted`,
    `${grouped(refused)} refused`,
    `${grouped(failed)} failed`,
    perSecond(recentPerSecond),
    ...(ack ? [`ack p50 ${duration(ack.p50)}, p99 ${duration(ack.p99)}`] : []),
  ].join(', ')
}

function block(shown: Shown, recentPerSecond: number, colors: Colors, width: number): string {
  const { options, tally, pace } = shown
  const { accepted, refused, failed } = tally.total
  const ack = tally.ackMs()
  const count = (value: number, word: string, mark: string, paint: (text: string) => string): string =>
    value === 0 ? colors.dim(`${mark} 0 ${word}`) : paint(`${mark} ${grouped(value)} ${word}`)
  const fates = [
    count(accepted, 'accepted', '✔', colors.green),
    count(refused, 'refused', '✖', colors.red),
    count(failed, 'failed', '!', colors.yellow),
  ]
  const asked = options.ratePerSecond
  const slow = pace.pacing().elapsedMs > 1_000 && !pace.pacing().keptUp
  const figures = [
    slow ? colors.yellow(`${perSecond(recentPerSecond)} of ${perSecond(asked)}: behind`) : perSecond(recentPerSecond),
    ...(ack ? [`ack p50 ${duration(ack.p50)}`, `p99 ${duration(ack.p99)}`] : []),
  ]
  return [
    bar(shown, colors, width),
    fates.join('   '),
    figures.join(colors.dim(' · ')),
    ...complaint(shown, colors),
  ].join('\n')
}

function bar({ options, tally, pace }: Shown, colors: Colors, width: number): string {
  const { sent } = tally.total
  const { elapsedMs } = pace.pacing()
  if (!isFinite(options.count)) return `${grouped(sent)} sent in ${span(elapsedMs)}  ${colors.dim('Ctrl+C ends it')}`
  const share = sent / options.count
  const rest = ` ${String(Math.floor(share * 100)).padStart(3)} %  ${grouped(sent)} of ${grouped(options.count)}`
  const leftMs = sent === 0 ? (1_000 * options.count) / options.ratePerSecond : (elapsedMs * (1 - share)) / share
  const left = sent === options.count ? '' : `  ${span(leftMs)} left`
  const cells = Math.max(10, Math.min(40, width - rest.length - 16))
  const filled = Math.round(cells * share)
  return `${colors.cyan('━'.repeat(filled))}${colors.dim('─'.repeat(cells - filled))}${rest}${colors.dim(left)}`
}

// The most frequent trouble, at once: nobody should wait for the end to learn that the secret is wrong.
function complaint({ options, tally }: Shown, colors: Colors): readonly string[] {
  const [refusal] = tally.refusals()
  const [failure] = tally.failures()
  return [
    ...(refusal
      ? [colors.red(`${refusal.status} ${refusal.error ?? refusal.text ?? ''}: `) + (refusal.hint ?? '')]
      : []),
    ...(failure ? [colors.yellow(`${failure.code}: `) + failureHint(failure, options)] : []),
  ]
}

/** Messages a second over the last seconds. */
function recentRate({ tally, pace }: Shown): () => number {
  let samples = [{ ms: 0, sent: 0 }]
  return () => {
    const now = { ms: pace.pacing().elapsedMs, sent: tally.total.sent }
    samples = [...samples.filter(({ ms }) => ms >= now.ms - 2_500), now]
    const from = samples[0] ?? now
    return now.ms - from.ms < 50 ? 0 : (1_000 * (now.sent - from.sent)) / (now.ms - from.ms)
  }
}
