/** How answers fail: `cut` breaks the connection in the middle. */
export type AnswerFault = '500' | '502' | '429' | 'slow' | 'cut'
/** How streams fail: `drop` breaks the connection, `silent` sends nothing more, `garbage` sends bytes that are not an item. */
export type StreamFault = 'drop' | 'silent' | 'garbage'

type Fetch = (request: Request) => Response | Promise<Response>

const slowMs = 5_000
/** In real time: a server that reads ahead would turn an error that comes at once into an answer of its own. */
const cutMs = 20

/**
 * A proxy before a service whose answers and streams fail on request: `POST /faults` with `{"answers", "count"}` or `{"streams"}`,
 * and `DELETE /faults`.
 */
export function faulty(service: Fetch): Fetch {
  let failing: { readonly fault: AnswerFault; left: number } | undefined
  const streams = new Set<(fault: StreamFault) => void>()

  return async (request) => {
    const { pathname } = new URL(request.url)
    if (pathname === '/faults') {
      failing = undefined
      if (request.method !== 'POST') return new Response()
      const { answers, streams: fault, count = 1 } = await request.json()
      if (answers !== undefined) failing = { fault: answers, left: count }
      else for (const fail of streams) fail(fault)
      return new Response()
    }
    if (pathname.endsWith('/MOVED')) return Response.redirect(new URL('/api/business/products', request.url), 301)
    if (pathname.startsWith('/sandbox/')) return service(request)
    const fault = failing?.fault
    if (failing !== undefined && (failing.left -= 1) === 0) failing = undefined
    if (fault === '500') return Response.json({ response: null, error: 'internal_error' }, { status: 500 })
    if (fault === '502')
      return new Response('<h1>Bad Gateway</h1>', { status: 502, headers: { 'content-type': 'text/html' } })
    if (fault === '429') return new Response('{}', { status: 429, headers: { 'retry-after': '0' } })
    if (fault === 'slow') await new Promise((resolve) => setTimeout(resolve, slowMs))
    // A request whose sender gave up is not carried out later, after the requests that followed it.
    if (request.signal.aborted) return new Response(null, { status: 500 })
    const answer = await service(request)
    if (answer.headers.get('content-type') === 'text/event-stream') return failable(answer, streams, fault === 'cut')
    return fault === 'cut' ? cut(answer) : answer
  }
}

/** The answer breaks after half of its body. Of a refusal nothing arrives: its status alone would end the retries. */
async function cut(answer: Response): Promise<Response> {
  if (!answer.ok) return new Response(null, { status: 502 })
  const whole = new Uint8Array(await answer.arrayBuffer())
  const headers = new Headers(answer.headers)
  // The length of the whole answer, so that the reader notices that the rest is missing.
  headers.set('content-length', String(Math.max(2, whole.length)))
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(whole.length < 2 ? new Uint8Array([123]) : whole.slice(0, Math.ceil(whole.length / 2)))
      setTimeout(() => controller.error(new Error('cut')), cutMs)
    },
  })
  return new Response(body, { status: answer.status, headers })
}

/** A stream that fails when it is told to, or after its first bytes. */
function failable({ body, headers }: Response, streams: Set<(fault: StreamFault) => void>, isCut: boolean): Response {
  const reader = body?.getReader()
  let isSilent = false
  let fail: ((fault: StreamFault) => void) | undefined
  const forget = (): void => void (fail && streams.delete(fail))
  const failing = new ReadableStream<Uint8Array>({
    start(controller) {
      fail = (fault) => {
        if (fault === 'silent') isSilent = true
        else if (fault === 'garbage') controller.enqueue(garbage)
        else {
          forget()
          controller.error(new Error('dropped'))
          void reader?.cancel()
        }
      }
      streams.add(fail)
    },
    async pull(controller) {
      const { done, value } = (await reader?.read()) ?? { done: true }
      if (done) {
        forget()
        return controller.close()
      }
      if (isSilent) return this.pull?.(controller)
      controller.enqueue(value)
      if (isCut) setTimeout(() => fail?.('drop'), cutMs)
      return undefined
    },
    async cancel() {
      forget()
      await reader?.cancel()
    },
  })
  return new Response(failing, { headers })
}

/** Half a message, a line that is not a field, and bytes that are not UTF-8. */
const garbage = Uint8Array.from([
  ...new TextEncoder().encode('data: {"data":{"Soc":\n\n<html>not an item\n\ndata: '),
  ...[0xff, 0xfe, 0xc3, 0x0a, 0x0a],
])
