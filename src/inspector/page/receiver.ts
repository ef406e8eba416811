import type { Item } from './answers.ts'
import { Signal } from './signal.ts'

/** The scripts are in `assets/`. The routes with the data are beside that folder. */
const mount = new URL('..', import.meta.url)

const secretKey = 'fleethook.secret'

export const secret: Signal<string | undefined> = new Signal(sessionStorage.getItem(secretKey) ?? undefined)

export const isRefused: Signal<boolean> = new Signal(false)

export function useSecret(given: string): void {
  sessionStorage.setItem(secretKey, given)
  isRefused.value = false
  secret.value = given
}

export function forgetSecret(): void {
  sessionStorage.removeItem(secretKey)
  secret.value = undefined
}

/** A request that got no answer, or an error. The message is for people. */
export class RequestError extends Error {
  readonly code: string
  constructor(code: string, text: string) {
    super(text)
    this.code = code
  }
}

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  headers.set('authorization', secret.value ?? '')
  const asked = secret.value
  const answer = await fetch(new URL(path, mount), { ...init, headers, cache: 'no-store' }).catch((error: unknown) => {
    if (init.signal?.aborted === true) throw error
    throw new RequestError('gone', 'The receiver does not answer.')
  })
  if (answer.ok) return answer
  if ((answer.status === 401 || answer.status === 403) && asked === secret.value) {
    isRefused.value = true
    forgetSecret()
  }
  const { error = 'failed', text = `The answer has status ${answer.status}.` }: { error?: string; text?: string } =
    await answer.json().catch(() => ({}))
  throw new RequestError(error, text)
}

export async function read<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  return (await request(path, signal === undefined ? {} : { signal })).json()
}

export async function post<Answer>(path: string, body: object = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json' }
  return (await request(path, { method: 'POST', headers, body: JSON.stringify(body) })).json()
}

/** The stream sends a comment every 15 seconds. A stream that is silent for this long is dead, in milliseconds. */
const silentMs = 40_000

interface ItemPage {
  readonly items: readonly Item[]
  /** The number of items that were dropped before they could be sent. */
  readonly missed?: number
  /** Where to continue. Only the last of several batches that belong together has it. */
  readonly cursor: string | undefined
}

/** Reads the feed until it ends or breaks. `opened` is called when the receiver has answered. */
export async function readFeed(
  query: string,
  signal: AbortSignal,
  opened: () => void,
  take: (batch: ItemPage) => void,
): Promise<void> {
  const silence = new AbortController()
  let timer = setTimeout(() => silence.abort(), silentMs)
  try {
    const { body } = await request(`feed?${query}`, { signal: AbortSignal.any([signal, silence.signal]) })
    opened()
    const reader = body?.pipeThrough(new TextDecoderStream()).getReader()
    let text = ''
    for (let part = await reader?.read(); part !== undefined && !part.done; part = await reader?.read()) {
      clearTimeout(timer)
      timer = setTimeout(() => silence.abort(), silentMs)
      const events = (text + part.value).split('\n\n')
      text = events.pop() ?? ''
      events.forEach((event) => takeEvent(event, take))
    }
  } finally {
    clearTimeout(timer)
  }
}

/** An event of the stream, as `operatorRoutes` writes it: at most one line `data`, and one line `id`. */
function takeEvent(event: string, take: (batch: ItemPage) => void): void {
  const lines = event.split('\n')
  const valueOf = (name: string): string | undefined =>
    lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2)
  const data = valueOf('data')
  if (data !== undefined) take({ ...JSON.parse(data), cursor: valueOf('id') })
}
