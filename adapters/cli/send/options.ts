import type { Format, WireTopic } from '../../../src/events/event.ts'

/** What `fleethook send` was asked to do. */
export interface SendOptions {
  readonly url: URL
  readonly secret: string | undefined
  /** In turns. */
  readonly formats: readonly Format[]
  readonly topics: readonly WireTopic[]
  readonly vins: number
  readonly ratePerSecond: number
  /** `Infinity`: until it is interrupted. */
  readonly count: number
  readonly seed: number
  /** Milliseconds since the epoch; without it the fleet's last message is from now. */
  readonly startAt: number | undefined
  readonly concurrency: number
  readonly timeoutMs: number
  readonly checkCertificate: boolean
  readonly output: 'progress' | 'quiet' | 'json'
}

/** The address without what may be secret in it. */
export function shownUrl({ url }: SendOptions): string {
  return `${url.origin}${url.pathname}`
}
