/** A stream of Server-Sent Events that a test controls. */
export interface Feed {
  readonly answer: () => Response
  readonly send: (text: string) => void
  readonly end: () => void
  readonly breakOff: () => void
  readonly cancelled: () => boolean
}

const encoder = new TextEncoder()

export function feed(): Feed {
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined
  let cancelled = false
  const body = new ReadableStream<Uint8Array>({
    start: (given) => void (controller = given),
    cancel: () => void (cancelled = true),
  })
  return {
    answer: () => new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8' } }),
    send: (text) => controller?.enqueue(encoder.encode(text)),
    end: () => controller?.close(),
    breakOff: () => controller?.error(new Error('reset')),
    cancelled: () => cancelled,
  }
}

/** A stream that sends this text and ends. */
export function ended(text: string): () => Response {
  return () => new Response(text, { headers: { 'content-type': 'text/event-stream' } })
}

/** One item. */
export function item(message: object): string {
  return `data: ${JSON.stringify(message)}\n\n`
}
