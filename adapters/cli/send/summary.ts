import wrapAnsi from 'wrap-ansi'
import type { Colors } from '../colors.ts'
import type { SendOptions } from './options.ts'
import type { SendResult } from './result.ts'
import type { Counts } from './tally.ts'
import { duration, failureHint, grouped, paceHint, perSecond, span } from './words.ts'

/** The summary for people: what became of the messages, how fast, and what to do about what went wrong. */
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
        ? 'Given up: the receiver cannot be reached. '
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
  if (rate.bottleneck) lines.push(`      ${paceHint(rate.bottleneck)}`)
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
  const refusals = result.refusals.map(({ count, status, code, error, text, hint }) => {
    const what = [error ?? text, code === undefined ? undefined : `(code ${code})`].filter((part) => part !== undefined)
    return trouble(colors.red(`${grouped(count)} × ${status} ${what.join(' ')}`), hint, width)
  })
  const failures = result.failures.map((failure) =>
    trouble(colors.yellow(`${grouped(failure.count)} × ${failure.code}`), failureHint(failure, options), width),
  )
  return [
    ...refusals,
    ...failures,
    indent('The service sends each message once: what a receiver does not accept is lost.', 2, width),
  ]
}

function trouble(what: string, hint: string | undefined, width: number): string {
  return hint ? `${indent(what, 2, width)}\n${indent(hint, 6, width)}` : indent(what, 2, width)
}

function indent(text: string, columns: number, width: number): string {
  const blank = ' '.repeat(columns)
  return wrapAnsi(text, width - columns, { trim: false })
    .split('\n')
    .map((line) => blank + line.replace(/^ (?=\S)/, ''))
    .join('\n')
}
