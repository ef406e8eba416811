import { isJsonObject } from '../../wire/record.ts'
import { hintFor } from './hint.ts'
import { type Connection, nameOf, type ServiceRequest } from './request.ts'
import { readRetryAfter } from './retry-after.ts'
import { ServiceError } from './service-error.ts'

/** The longest text of the service that an error repeats, in characters. */
const textLength = 300

/** The error that an answer other than a 2xx is. */
export async function refusalOf(
  answer: Response,
  request: ServiceRequest,
  { apiKey, clock }: Connection,
): Promise<ServiceError> {
  const read = readError(await bodyOf(answer))
  const shown = (text: string): string => without(text, [apiKey, request.secret])
  const code = read.code === undefined || shown(read.code) !== read.code ? undefined : read.code
  const said = read.text === undefined ? '' : `: ${shown(read.text).slice(0, textLength)}`
  // What a browser hides of a redirection has the status 0.
  const status = answer.status === 0 ? 302 : answer.status
  const headers = answer.headers
  const requestId = headers.get('x-request-id') ?? headers.get('x-txid') ?? undefined
  return new ServiceError(
    code ?? 'refused',
    `${nameOf(request)} was answered with ${status}${code === undefined ? '' : ` ${code}`}${said}${/[.!?]$/.test(said) ? '' : '.'}`,
    {
      status,
      hint: hintFor(status, code ?? '', request),
      requestId: requestId === undefined ? undefined : shown(requestId),
      retryAfterMs: readRetryAfter(headers.get('retry-after'), clock.now()),
    },
  )
}

async function bodyOf(answer: Response): Promise<unknown> {
  try {
    return JSON.parse(await answer.text())
  } catch {
    // A proxy's page of HTML says no more than the status does.
    return undefined
  }
}

/** The code and the text of an error's body, in each of the shapes that such bodies have. */
function readError(body: unknown): { readonly code: string | undefined; readonly text: string | undefined } {
  if (!isJsonObject(body)) return { code: undefined, text: undefined }
  const { error } = body
  const inner = isJsonObject(error) ? error : body
  const code = codeIn(error) ?? codeIn(inner['code'])
  const text = inner['error_description'] ?? inner['message'] ?? (code === undefined ? error : undefined)
  return { code, text: typeof text === 'string' && text !== '' ? text : undefined }
}

function codeIn(value: unknown): string | undefined {
  return typeof value === 'string' && /^\w{1,64}$/.test(value) ? value : undefined
}

/** The service may quote what it was sent: a secret, and a secret as it stands in JSON. */
function without(text: string, secrets: readonly (string | undefined)[]): string {
  const spellings = secrets.flatMap((secret) => (secret ? [JSON.stringify(secret).slice(1, -1), secret] : []))
  return spellings.reduce((left, secret) => left.replaceAll(secret, '…'), text)
}
