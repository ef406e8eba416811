/** The status and code of an answer with this `error`, by the contract's table. */
const table: Readonly<Record<string, readonly [status: number, code: number]>> = {
  request_unreadable: [400, 6],
  authorization_missing: [401, 2],
  authorization_scheme: [401, 3],
  secret_wrong: [403, 4],
  secret_unavailable: [503, 9],
  body_empty: [400, 5],
  body_consumed: [400, 6],
  body_interrupted: [400, 6],
  body_not_json: [400, 6],
  body_gzip_broken: [400, 6],
  time_invalid: [400, 6],
  event_missing: [400, 12],
  event_blank: [400, 13],
  body_too_large: [413, 6],
  encoding_unsupported: [415, 6],
  method_not_allowed: [405, 405],
  path_unknown: [404, 404],
  inbox_full: [503, 9],
  inbox_unavailable: [503, 9],
  not_handled: [500, 8],
  not_handled_in_time: [503, 9],
  draining: [503, 23],
}

/** The content of an answer that is in the contract's table. */
export interface Answered {
  readonly error: string | undefined
  /** The number of messages that were taken before a broken one. */
  readonly eventNumber: number | undefined
}

/** Reads an answer by the contract. Returns a text that says what is wrong with it. */
export function readAnswer(status: number, text: string, method = 'POST'): Answered | string {
  if (method === 'HEAD') return text === '' ? { error: undefined, eventNumber: undefined } : 'HEAD has a body.'
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    return `It is no JSON: ${text}`
  }
  if (status === 200) {
    const isRight = text === '{"text":"Success","code":0}' || text === '{"text":"HEC is healthy","code":17}'
    return isRight ? { error: undefined, eventNumber: undefined } : `200 with ${text}`
  }
  if (answer === null || typeof answer !== 'object') return `It is no object: ${text}`
  const fields: Readonly<Record<string, unknown>> = { ...answer }
  if (status === 503 && fields['code'] === 18) return { error: 'inbox_full', eventNumber: undefined }
  const { error, code, hint, text: words, 'invalid-event-number': eventNumber } = fields
  const [wantedStatus, wantedCode] = (typeof error === 'string' && table[error]) || []
  if (typeof error !== 'string' || wantedStatus === undefined) return `There is no such answer: ${text}`
  if (status !== wantedStatus || code !== wantedCode) return `${error} with status ${status} and code ${String(code)}`
  if (typeof words !== 'string' || typeof hint !== 'string' || hint.length < 20) return `Without words: ${text}`
  if (eventNumber !== undefined && typeof eventNumber !== 'number') return `invalid-event-number is no number: ${text}`
  return { error, eventNumber }
}
