import type * as z from 'zod/mini'
import { isJsonObject } from '../../wire/record.ts'
import { nameOf, type ServiceRequest } from './request.ts'
import { ServiceError } from './service-error.ts'

/** Reads the JSON of an answer; an empty body is `undefined`. */
export async function readJson(answer: Response, request: ServiceRequest): Promise<unknown> {
  const text = await answer.text()
  if (text.trim() === '') return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw new ServiceError(
      'answer_unreadable',
      `${nameOf(request)} was answered with ${answer.status} and ${text.length} characters that are not JSON.`,
      { status: answer.status, hint: 'Is `baseUrl` the service’s address, and not that of a page?' },
    )
  }
}

/** Lets go of an answer whose body says nothing more, so that its connection is free. */
export async function discard(answer: Response): Promise<void> {
  await answer.body?.cancel()
}

/** What is in the wrapper that most answers have: `{"response": …}`. */
export function unwrapped(body: unknown): unknown {
  return isJsonObject(body) && 'response' in body ? body['response'] : body
}

/** Checks an answer against its schema. Members that the schema does not name stay. */
export function checked<T>(schema: z.ZodMiniType<T>, value: unknown, request: ServiceRequest): T {
  const { data, error } = schema.safeParse(value)
  if (error === undefined) return data
  const [issue] = error.issues
  const place = issue === undefined || issue.path.length === 0 ? 'its top level' : `\`${issue.path.join('.')}\``
  throw new ServiceError(
    'answer_unreadable',
    `${nameOf(request)} was answered in a shape that the specification does not give: at ${place}.`,
    { hint: 'Is `baseUrl` the service’s address? If so, a newer fleethook may know this answer.' },
  )
}
