import type { WriteStream } from 'node:tty'
import { createLogUpdate } from 'log-update'
import prettyMs from 'pretty-ms'
import wrapAnsi from 'wrap-ansi'
import { secretErrors } from '../../../src/receiver/refusals.ts'
import { checkDigits } from '../../../src/wire/identity.ts'
import { colorsFor, type Colors } from '../terminal.ts'
import type { Bottleneck, Pace } from './pace.ts'
import type { RefusalBody, SendOptions } from './post.ts'
import type { Counts, FailureCount, SendResult, Tally } from './tally.ts'

interface Progress {
  /** Removes the live display. Lines that were printed stay. */
  end(): void
}

interface Shown {
  readonly options: SendOptions
  readonly tally: Tally
  readonly pace: Pace
}

/** A live display on a terminal, or a line every two seconds elsewhere. */
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
  const { url, secret, formats, topics, vins, seed, ratePerSecond } = options
  // Credentials and the query can hold a secret.
  const address = `${url.origin}${url.pathname}`
  const what = [
    `${grouped(vins)} ${vins === 1 ? 'vehicle' : 'vehicles'}`,
    formats.length === 1 ? `format ${formats[0]}` : 'all formats',
    topics.length === 6 ? 'all topics' : `only ${topics.join(', ')}`,
    perSecond(ratePerSecond),
    `seed ${seed}`,
    secret === undefined ? 'no secret given' : `secret with the check digits ${checkDigits(secret)}`,
  ]
  return `${colors.bold('fleethook send')} ${colors.dim('→')} ${colors.cyan(address)}\n${colors.dim(what.join(' · '))}`
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

// The most frequent problem, so that a wrong secret shows before the end.
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

/** Messages per second over the last seconds. */
function recentRate({ tally, pace }: Shown): () => number {
  let samples = [{ ms: 0, sent: 0 }]
  return () => {
    const now = { ms: pace.pacing().elapsedMs, sent: tally.total.sent }
    samples = [...samples.filter(({ ms }) => ms >= now.ms - 2_500), now]
    const from = samples[0] ?? now
    return now.ms - from.ms < 50 ? 0 : (1_000 * (now.sent - from.sent)) / (now.ms - from.ms)
  }
}

/** The summary for people: the outcomes, the speed, and what to do about problems. */
export function summary(result: SendResult, options: SendOptions, colors: Colors, width: number): string {
  const parts = [verdict(result, colors)]
  if (result.refused + result.failed > 0) parts.push(...troubles(result, options, colors, width))
  if (result.ackMs) parts.push(figures(result, options, colors, width))
  if (result.accepted > 0) parts.push(table(result, options, colors))
  return `\n${parts.join('\n\n')}\n`
}

function verdict(result: SendResult, colors: Colors): string {
  const { sent, accepted, refused, failed, notSent, stopped } = result
  const ended =
    stopped === 'interrupted'
      ? 'Stopped. '
      : stopped === 'unreachable'
        ? 'Stopped: the receiver cannot be reached. '
        : ''
  const rest = stopped && notSent ? ` ${grouped(notSent)} were not sent.` : ''
  if (sent === 0) return colors.bold(`${ended}Nothing was sent.`)
  if (accepted === sent) {
    const all = sent === 1 ? 'The message was accepted.' : `All ${grouped(sent)} messages were accepted.`
    return `${colors.green('✔')} ${colors.bold(ended + all)}${rest}`
  }
  const fates = [
    `${grouped(accepted)} accepted`,
    ...(refused > 0 ? [colors.red(`${grouped(refused)} refused`)] : []),
    ...(failed > 0 ? [colors.yellow(`${grouped(failed)} failed`)] : []),
  ]
  return `${colors.red('✖')} ${colors.bold(`${ended}${grouped(sent)} sent:`)} ${fates.join(', ')}.${rest}`
}

function figures(result: SendResult, options: SendOptions, colors: Colors, width: number): string {
  const { rate, ackMs, elapsedMs } = result
  const took = `in ${span(elapsedMs)}`
  const achieved = rate.keptUp
    ? `${perSecond(rate.achievedPerSecond)}, as asked, ${took}`
    : `${perSecond(rate.achievedPerSecond)} of the ${perSecond(rate.askedPerSecond)} asked for, ${took}; the latest message left ${duration(rate.latestMs)} late`
  const lines = [`${colors.dim('rate')}  ${rate.keptUp ? achieved : colors.yellow(achieved)}`]
  if (rate.bottleneck) lines.push(`      ${paceHints[rate.bottleneck]}`)
  if (ackMs) {
    const shown = (['p50', 'p95', 'p99', 'max'] as const).map((name) => `${name} ${duration(ackMs[name])}`)
    lines.push(`${colors.dim('ack')}   ${shown.join(colors.dim(' · '))}`)
  }
  lines.push(
    `${colors.dim('again')} ${colors.dim(`--seed ${options.seed} --vins ${options.vins} --start-at ${result.startAt}`)}`,
  )
  return lines.map((line) => indent(line, 2, width)).join('\n')
}

function table(result: SendResult, { formats, topics }: SendOptions, colors: Colors): string {
  const cell = (counts: Readonly<Counts> | undefined): string => {
    if (!counts) return '·'
    return counts.accepted === counts.sent
      ? grouped(counts.sent)
      : `${grouped(counts.accepted)} of ${grouped(counts.sent)}`
  }
  const rows = topics.map((topic) => formats.map((format) => cell(result.topics[topic]?.[format])))
  const widths = formats.map((format, column) =>
    Math.max(format.length, ...rows.map((row) => row[column]?.length ?? 0)),
  )
  const name = Math.max(...topics.map((topic) => topic.length))
  const head = formats.map((format, column) => format.padStart(widths[column] ?? 0)).join('  ')
  const body = topics.map((topic, index) => {
    const cells = rows[index]?.map((text, column) => paint(text.padStart(widths[column] ?? 0), colors)) ?? []
    return `  ${topic.padEnd(name)}  ${cells.join('  ')}`
  })
  return [colors.dim(`  ${'accepted'.padEnd(name)}  ${head}`), ...body].join('\n')
}

function paint(cell: string, colors: Colors): string {
  if (cell.includes('of')) return colors.red(cell)
  return cell.endsWith('·') ? colors.dim(cell) : cell
}

function troubles(result: SendResult, options: SendOptions, colors: Colors, width: number): readonly string[] {
  const refusals = result.refusals.map((refusal) => {
    const { count, status, code, error, text, hint = '' } = refusal
    const what = [error ?? text, code === undefined ? undefined : `(code ${code})`].filter((part) => part !== undefined)
    return trouble(
      colors.red(`${grouped(count)} × ${status} ${what.join(' ')}`),
      (hint + secretHint(refusal, options)).trim(),
      width,
    )
  })
  const failures = result.failures.map((failure) =>
    trouble(colors.yellow(`${grouped(failure.count)} × ${failure.code}`), failureHint(failure, options), width),
  )
  return [
    ...refusals,
    ...failures,
    indent('The service sends each message once. A message that the receiver does not accept is lost.', 2, width),
  ]
}

/** What `send` adds to the receiver's own hint. */
function secretHint({ error = '' }: RefusalBody, { secret }: SendOptions): string {
  if (!secretErrors.has(error)) return ''
  if (secret === undefined) return ' No secret was sent: set WEBHOOK_SECRET in the environment or in .env.'
  return ` The secret that was sent has the check digits ${checkDigits(secret)}. The receiver prints its own when it starts.`
}

function trouble(what: string, hint: string, width: number): string {
  return hint ? `${indent(what, 2, width)}\n${indent(hint, 6, width)}` : indent(what, 2, width)
}

function indent(text: string, columns: number, width: number): string {
  const blank = ' '.repeat(columns)
  return wrapAnsi(text, width - columns, { trim: false })
    .split('\n')
    .map((line) => blank + line.replace(/^ (?=\S)/, ''))
    .join('\n')
}

/** A number with separated thousands: `12,500`. */
function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

/** A rate: `1,250/s`, `99.8/s`. */
function perSecond(value: number): string {
  const digits = value >= 99.95 || Number.isInteger(value) ? 0 : value < 1 ? 2 : 1
  return `${value.toLocaleString('en-US', { maximumFractionDigits: digits })}/s`
}

/** A response time: `0.8ms`, `120ms`, `3.4s`. */
const duration = (ms: number): string => prettyMs(ms, { millisecondsDecimalDigits: ms < 9.95 ? 1 : 0 })

/** A length of time: `42s`, `3m 20s`, `2h 5m`. */
const span = (ms: number): string => prettyMs(ms, { unitCount: 2, secondsDecimalDigits: ms < 10_000 ? 1 : 0 })

/** The most likely meaning of a network error. */
function failureHint({ code }: FailureCount, { timeoutMs }: SendOptions): string {
  if (code === 'ECONNREFUSED') return 'Nothing listens there. Is the receiver running, and is the port right?'
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'There is no host of that name.'
  if (code === 'ECONNRESET' || code === 'EPIPE')
    return 'The connection closed without an answer. See the log of the receiver.'
  if (code === 'TIMEOUT')
    return `No answer within ${duration(timeoutMs)}. The service would not wait either: answer first, work afterwards.`
  if (code === 'EMFILE' || code === 'EADDRNOTAVAIL')
    return 'This machine has no connections left. Use a lower --concurrency.'
  if (code.startsWith('HPE_')) return 'The server there does not speak HTTP.'
  if (/CERT|SELF_SIGNED|TLS|SSL/.test(code)) {
    return 'The service would not trust this TLS certificate. --insecure skips the check.'
  }
  return ''
}

/** Why the rate was not reached, and what to do. */
const paceHints: Readonly<Record<Bottleneck, string>> = {
  concurrency:
    'All connections were waiting for answers. The receiver is too slow for this rate, or --concurrency is too low.',
  vins: 'The messages of one vehicle wait for each other. Use more --vins.',
  machine: 'This machine could not send faster.',
}
