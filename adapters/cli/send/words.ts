import type { Bottleneck } from './pace.ts'
import type { FailureCount } from './tally.ts'
import type { SendOptions } from './options.ts'

/** A number with its thousands set apart: `12,500`. */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US')
}

/** A rate with as many digits as it needs: `1,250/s`, `99.8/s`. */
export function perSecond(value: number): string {
  const digits = value >= 99.95 || Number.isInteger(value) ? 0 : value < 1 ? 2 : 1
  return `${value.toLocaleString('en-US', { maximumFractionDigits: digits })}/s`
}

/** A latency: `0.8 ms`, `120 ms`, `3.4 s`. */
export function duration(ms: number): string {
  if (ms < 9.95) return `${ms.toFixed(1)} ms`
  return ms < 995 ? `${ms.toFixed(0)} ms` : `${(ms / 1_000).toFixed(1)} s`
}

/** A length of time for people: `42 s`, `3 min 20 s`, `2 h 5 min`. */
export function span(ms: number): string {
  const seconds = Math.round(ms / 1_000)
  if (seconds < 100) return ms < 9_950 ? `${(ms / 1_000).toFixed(1)} s` : `${seconds} s`
  if (seconds < 6_000) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`
}

/** What a network error most likely means. */
export function failureHint({ code }: Pick<FailureCount, 'code'>, { timeoutMs }: SendOptions): string {
  if (code === 'ECONNREFUSED') return 'Nothing listens there: is the receiver running, and is the port right?'
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'There is no host of that name.'
  if (code === 'ECONNRESET' || code === 'EPIPE')
    return 'The connection was closed without an answer: see the log of the receiver.'
  if (code === 'TIMEOUT')
    return `No answer within ${duration(timeoutMs)}: the service would not wait either. Answer first, work afterwards.`
  if (code === 'EMFILE' || code === 'EADDRNOTAVAIL')
    return 'This machine has no connections left: use a lower --concurrency.'
  if (code.startsWith('HPE_')) return 'What answers there does not speak HTTP.'
  if (/CERT|SELF_SIGNED|TLS|SSL/.test(code)) {
    return 'The TLS certificate is not one that the service would trust. With --insecure it is not checked.'
  }
  return ''
}

/** Why the rate was not reached, and what to do about it. */
export function paceHint(bottleneck: Bottleneck): string {
  const hints: Readonly<Record<Bottleneck, string>> = {
    concurrency:
      'All connections were waiting for answers: the receiver is slower than this, or --concurrency is too low.',
    vins: 'The messages of one vehicle wait for each other: use more --vins.',
    machine: 'This machine could not send faster.',
  }
  return hints[bottleneck]
}
