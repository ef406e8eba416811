import { refusalOf } from './refusal.ts'
import { type Connection, nameOf, type ServiceRequest, urlOf } from './request.ts'
import { ServiceError } from './service-error.ts'

/**
 * One request, once, and what `read` makes of a 2xx. Rejects with a `ServiceError` for every other answer and for none; with
 * the reason of the signal when that is aborted.
 */
export async function exchange<T>(
  connection: Connection,
  request: ServiceRequest,
  signal: AbortSignal,
  read: (answer: Response) => T | Promise<T>,
): Promise<T> {
  const init = initOf(connection, request, signal)
  try {
    const answer = await connection.fetch(urlOf(connection.baseUrl, request), init)
    if (!answer.ok) throw await refusalOf(answer, request, connection)
    return await read(answer)
  } catch (error) {
    if (error instanceof ServiceError) throw error
    if (signal.aborted) throw signal.reason
    throw new ServiceError('unreachable', `${nameOf(request)}: no answer, ${reasonOf(error)}.`, {
      hint: 'Is `baseUrl` right, and can this machine reach it?',
      cause: error,
    })
  }
}

function initOf({ apiKey }: Connection, request: ServiceRequest, signal: AbortSignal): RequestInit {
  const { method, body, headers } = request
  return {
    method,
    headers: {
      accept: 'application/json',
      ...headers,
      authorization: `Bearer ${apiKey}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    // Whoever answers with another address does not get the key.
    redirect: 'manual',
    signal,
  }
}

/** Why there was no answer. `fetch` hides the reason in its error's cause. */
function reasonOf(error: unknown): string {
  const inner = error instanceof Error && error.cause instanceof Error ? error.cause : error
  if (!(inner instanceof Error)) return `a ${typeof inner} was thrown`
  const code = 'code' in inner && typeof inner.code === 'string' ? inner.code : undefined
  return code ?? inner.message.slice(0, 200)
}
