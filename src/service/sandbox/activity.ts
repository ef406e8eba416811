import type { ActivityLine } from './options.ts'

interface PostResult {
  readonly url: string
  readonly topic: string
  readonly vin: string | undefined
  readonly ms: number
  /** `undefined` when there was no answer. */
  readonly status: number | undefined
  readonly error?: string
}

/** Shows what happens in a sandbox, line by line. */
export interface Activity {
  delivery(result: PostResult): void
  call(method: string, path: string, status: number, ms: number, code: string | undefined): void
  stream(what: string, path: string, why: string): void
}

/** After this number of failures in a row, the alarm is shown again. */
const alarmEvery = 20
const longestPath = 200

/** Shows lines, without the secrets that `secrets` returns. A `show` that throws changes nothing. */
export function createActivity(show: (line: ActivityLine) => void, secrets: () => readonly string[]): Activity {
  let failures = 0

  const say = (kind: ActivityLine['kind'], failed: boolean, text: string): void => {
    try {
      show({ kind, failed, text: without(text, secrets()) })
    } catch {
      // Nobody watches.
    }
  }

  return {
    delivery({ url, topic, vin, ms, status, error = 'unknown' }) {
      const failed = status === undefined || status < 200 || status > 299
      const why = failed ? whyNotTaken(status, error) : undefined
      const place = addressOf(url)
      const parts = [
        `${status ?? '---'} → POST ${place}`,
        [topic, vin].filter(Boolean).join(' '),
        `${ms} ms`,
        why?.reason,
      ]
      say('delivery', failed, parts.filter(Boolean).join('  '))
      if (why !== undefined) {
        if (failures % alarmEvery === 0) {
          const lost = failures === 0 ? 'a message' : `${failures + 1} messages in a row`
          say(
            'alarm',
            true,
            `The webhook did not take ${lost}, and the service sends each once: ${why.reason}. ${why.hint}`,
          )
        }
        failures += 1
      } else {
        if (failures > 0)
          say('alarm', false, `The webhook takes messages again, after ${failures} that it did not take.`)
        failures = 0
      }
    },
    call(method, path, status, ms, code) {
      const failed = status >= 400
      const parts = [`${status} ← ${method} ${path.slice(0, longestPath)}`, `${ms} ms`, code]
      say('call', failed, parts.filter(Boolean).join('  '))
    },
    stream(what, path, why) {
      say('stream', false, [`${what} ⇉ ${path.slice(0, longestPath)}`, why].filter(Boolean).join('  '))
    },
  }
}

/** An address without a user, a password or a query. */
function addressOf(url: string): string {
  if (!URL.canParse(url)) return '(not a URL)'
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname}`
}

function without(text: string, secrets: readonly string[]): string {
  return secrets.reduce((rest, secret) => (secret === '' ? rest : rest.replaceAll(secret, '***')), text)
}

interface Why {
  readonly reason: string
  readonly hint: string
}

function whyNotTaken(status: number | undefined, error: string): Why {
  if (status === undefined) return { reason: `no answer (${error})`, hint: networkHint(error) }
  const known = refusals[status]
  if (known !== undefined) return known
  if (status >= 300 && status < 400) {
    return { reason: 'a redirection, which is not followed', hint: 'Set the webhook to the address that it leads to.' }
  }
  return status >= 500
    ? { reason: 'the receiver failed', hint: 'Read the log of the receiver.' }
    : { reason: 'refused', hint: 'The answer of the receiver says why: send the same message yourself.' }
}

const setSecret = 'Set the webhook again, with `auth` as the secret of the receiver.'
const refusals: Readonly<Record<number, Why>> = {
  401: { reason: 'no secret, or not of the expected scheme', hint: setSecret },
  403: { reason: 'wrong secret', hint: setSecret },
  404: { reason: 'no receiver at this path', hint: 'Set the webhook to the path at which the receiver is mounted.' },
  405: { reason: 'no receiver at this path', hint: 'Set the webhook to the path at which the receiver is mounted.' },
  413: { reason: 'too large for the receiver', hint: 'Raise `limits.bodyBytes` of the receiver.' },
  503: { reason: 'the receiver is full, or stops', hint: 'Read the log of the receiver.' },
}

/** The most likely meaning of a network error, by its code. */
const networkHints: readonly (readonly [RegExp, string])[] = [
  [/^ECONNREFUSED/, 'Nothing listens there. Is the receiver running, and is the port right?'],
  [/^(ENOTFOUND|EAI_AGAIN)/, 'There is no host of that name.'],
  [/^(ECONNRESET|EPIPE)/, 'The connection closed without an answer. See the log of the receiver.'],
  [/^Timeout/i, 'No answer in time. The service would not wait either: answer first, work afterwards.'],
  [/^(EMFILE|EADDRNOTAVAIL)/, 'This machine has no connections left. Use fewer at once.'],
  [/^HPE_/, 'The server there does not speak HTTP.'],
  [/CERT|SIGN|ALTNAME|TLS|SSL/, 'Nobody trusts this TLS certificate. `verify: false` of a webhook skips the check.'],
]

export function networkHint(code: string): string {
  return networkHints.find(([error]) => error.test(code))?.[1] ?? 'Check that the receiver runs, and its address.'
}
