import { type AnswerCase, payloadMark } from './answer-cases.ts'
import { bodyCases } from './body-cases.ts'
import type { Conformance } from './inbox-conformance.ts'
import { pathCases } from './path-cases.ts'
import { type Answered, posting } from './post.ts'
import type { ReceiverUnderTest } from './receiver-conformance.ts'
import { secretCases } from './secret-cases.ts'

const success = '{"text":"Success","code":0}'

/** The contract's table of answers, over HTTP. */
export function answerChecks(subject: ReceiverUnderTest): readonly Conformance[] {
  const { secret, bodyBytes = 1_048_576 } = subject
  const post = posting(subject)
  return [...bodyCases(secret, bodyBytes), ...secretCases(secret), ...pathCases(secret)].map((known) => ({
    name: known.name,
    async run() {
      const answered = await post(known)
      for (const flaw of flaws(known, answered, secret)) throw new Error(`${flaw} ${described(known, answered)}`)
    },
  }))
}

/** What is wrong with an answer, the worst first. */
function* flaws(known: AnswerCase, { status, headers, text }: Answered, secret: string): Generator<string> {
  const shown = text + [...headers].flat().join()
  if (shown.includes(secret)) yield 'The answer shows the secret.'
  if (shown.includes(payloadMark)) yield 'The answer shows what was posted.'
  if (status !== known.status) yield 'The status is another.'
  if (status === 405 && !headers.get('allow')) yield 'The answer does not say in Allow which methods there are.'
  if (known.code === undefined) return

  if (!/^application\/json\b/.test(headers.get('content-type') ?? '')) yield 'The answer is not called JSON.'
  const body = parsed(text)
  if (body === undefined) yield 'The answer is not JSON.'
  if (known.code === 0 && text !== success) yield `The answer is not exactly ${success}.`
  if (body?.['code'] !== known.code) yield 'The code is another.'
  if (body?.['error'] !== known.error) yield 'The error is another.'
  if (known.error !== undefined && typeof body?.['text'] !== 'string') yield 'The refusal has no text.'
  if (known.number !== undefined && body?.['invalid-event-number'] !== known.number)
    yield 'The number of the event at fault is another.'
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    return Object(JSON.parse(text))
  } catch {
    return undefined
  }
}

function described(known: AnswerCase, { status, text }: Answered): string {
  const { code, error, number } = known
  const details = Object.entries({ code, error, 'invalid-event-number': number })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `, ${name} ${value}`)
  return `Expected ${known.status}${details.join('')}, and got ${status} ${text.slice(0, 300)}`
}
