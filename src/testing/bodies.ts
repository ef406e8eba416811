import type { PostedBody } from './post.ts'

/** A body in three pieces, cut wherever that falls, without its length. */
export function chunked(text: string): () => PostedBody {
  return () => {
    const bytes = new TextEncoder().encode(text)
    const size = Math.max(1, Math.ceil(bytes.length / 3))
    let at = 0
    return new ReadableStream<Uint8Array<ArrayBuffer>>({
      pull(controller) {
        if (at >= bytes.length) return controller.close()
        controller.enqueue(bytes.slice(at, at + size))
        at += size
      },
    })
  }
}

/** The beginning of a body whose rest never comes. */
export function unfinished(text: string): () => PostedBody {
  return () =>
    new ReadableStream<Uint8Array<ArrayBuffer>>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text))
      },
    })
}

export function gzipped(text: string): () => Promise<PostedBody> {
  return async () => {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('gzip'))
    return new Uint8Array(await new Response(stream).arrayBuffer())
  }
}

/** A gzip stream that ends too early. */
export function torn(text: string): () => Promise<PostedBody> {
  return async () => {
    const whole = await gzipped(text)()
    return whole instanceof Uint8Array ? whole.slice(0, whole.length - 12) : whole
  }
}
