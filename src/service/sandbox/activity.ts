import type { ActivityLine } from './options.ts'

/** The result of one post to the webhook. */
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
  stream(what: string, path: string, why: string, failed?: boolean): void
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
    delivery({ url, topic, vin, ms, status, error }) {
      const failed = status === undefined || status < 200 || status > 299
      const why = status === undefined ? whyNoAnswer(error ?? 'unknown') : failed ? whyRefused(status) : undefined
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
    stream(what, path, why, failed = false) {
      say('stream', failed, [`${what} ⇉ ${path.slice(0, longestPath)}`, why].filter(Boolean).join('  '))
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

function whyRefused(status: number): Why {
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

function whyNoAnswer(error: string): Why {
  const [reason, hint] =
    error === 'ECONNREFUSED'
      ? ['nothing listens there (ECONNREFUSED)', 'Start the receiver, or set the webhook to its address.']
      : error === 'ENOTFOUND' || error === 'EAI_AGAIN'
        ? [`no such host (${error})`, 'Check the address of the webhook.']
        : error === 'TimeoutError'
          ? ['no answer in 10 seconds', 'Answer first, and handle the message afterwards.']
          : /CERT|SELF_SIGNED|SIGNATURE|ALTNAME/.test(error)
            ? [
                `the certificate is not trusted (${error})`,
                'Set the webhook with `verify` as false, or use a trusted one.',
              ]
            : [`no answer (${error})`, 'Check that the receiver runs, and the address of the webhook.']
  return { reason, hint }
}
