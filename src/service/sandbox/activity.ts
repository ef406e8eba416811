import type { ActivityLine } from './options.ts'

interface PostResult {
  readonly url: string
  readonly topic: string
  readonly vin: string | undefined
  readonly ms: number
  /** `undefined` when there was no answer. */
  readonly status: number | undefined
  readonly error: string | undefined
}

const longestPath = 200

/** What most likely keeps a receiver from taking a message. */
const reasons: Readonly<Record<number, string>> = {
  401: 'no secret, or not of the expected scheme',
  403: 'wrong secret',
  404: 'no receiver at this path',
  503: 'the receiver is full, or stops',
}

/** Shows what happens in a sandbox, line by line, without the secrets that `secrets` returns. A `show` that throws changes nothing. */
export class Activity {
  readonly #show: (line: ActivityLine) => void
  readonly #secrets: () => readonly string[]

  constructor(show: (line: ActivityLine) => void, secrets: () => readonly string[]) {
    this.#show = show
    this.#secrets = secrets
  }

  delivery({ url, topic, vin, ms, status, error }: PostResult): void {
    const { origin, pathname } = new URL(url)
    const failed = status === undefined || status < 200 || status > 299
    const why = status === undefined ? `no answer (${error ?? 'unknown'})` : failed && (reasons[status] ?? 'refused')
    const about = [topic, vin].filter(Boolean).join(' ')
    this.#say('delivery', failed, [`${status ?? '---'} → POST ${origin}${pathname}`, about, `${ms} ms`, why])
  }

  call(method: string, path: string, status: number, ms: number, code: string | undefined): void {
    this.#say('call', status >= 400, [`${status} ← ${method} ${path.slice(0, longestPath)}`, `${ms} ms`, code])
  }

  stream(what: string, path: string, why: string): void {
    this.#say('stream', false, [`${what} ⇉ ${path.slice(0, longestPath)}`, why])
  }

  #say(kind: ActivityLine['kind'], failed: boolean, parts: readonly (string | false | undefined)[]): void {
    const secrets = this.#secrets().filter((secret) => secret !== '')
    const text = secrets.reduce((rest, secret) => rest.replaceAll(secret, '***'), parts.filter(Boolean).join('  '))
    try {
      this.#show({ kind, failed, text })
    } catch {
      // Nobody watches.
    }
  }
}
