import type { Command } from 'commander'
import { FleethookError, withHint } from '../../src/base/errors.ts'
import { whole } from './arguments.ts'
import { type ConnectionOptions, operates, Operator } from './operator.ts'
import { servePage } from './page-server.ts'

interface Given {
  readonly port: number
}

export function defineInspect(command: Command): void {
  command
    .description(
      'Shows a running receiver on a page in the browser until Ctrl+C: what arrives, what its handlers do with it, and what goes wrong. ' +
        'The page is only for this machine. Its address contains a secret that is new each time.',
    )
    .option('--port <n>', 'the port of the page; 0 takes any free port', whole(0, 65_535), 0)
  operates<[], Given>(
    command,
    async ({ to, operator }, { port }) => {
      await operator.ask('GET', '/about')
      const ended = new Promise<void>((resolve) => {
        for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve())
      })
      const page = await servePage(dataOf(to), port).catch((cause: unknown) => {
        const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause)
        throw new FleethookError('option_invalid', `Cannot listen on port ${port}: ${why}.`, {
          hint: 'Give --port another one, or leave it out.',
          cause,
        })
      })
      console.log(page.url)
      await ended
      await page.close()
      return true
    },
    'receiver',
  )
}

/** Forwards the page's requests to the receiver. Prints a line when it stops, and one when it runs again. */
export function dataOf(to: ConnectionOptions): (request: Request) => Promise<Response> {
  const operator = new Operator(to, 'receiver')
  let isGone = false
  const say = (gone: boolean, line: string): void => {
    if (gone !== isGone) console.error(line)
    isGone = gone
  }
  return async (request) => {
    const { pathname, search } = new URL(request.url)
    const body = request.method === 'GET' ? undefined : await request.text()
    try {
      const { method, signal } = request
      const answer = await operator.pass({ method, path: `${pathname}${search}`, body, signal })
      say(false, 'The receiver runs again.')
      const stopped = (): void => {
        if (!signal.aborted) say(true, stoppedLine)
      }
      return new Response(answer.body && untilBroken(answer.body, stopped), {
        status: answer.status,
        headers: { 'content-type': answer.headers.get('content-type') ?? '' },
      })
    } catch (error) {
      if (!request.signal.aborted) say(true, stoppedLine)
      const text = error instanceof FleethookError ? withHint(error) : 'The receiver closed the connection.'
      return Response.json({ error: 'receiver_stopped', text }, { status: 503 })
    }
  }
}

const stoppedLine = 'The receiver stopped. Waiting until it runs again. Press Ctrl+C to end.'

/** The feed ends when the receiver does. The page's server would print the error of a body with its stack. */
function untilBroken(body: ReadableStream<Uint8Array>, broken: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader()
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read()
        if (done) controller.close()
        else controller.enqueue(value)
      } catch {
        broken()
        controller.close()
      }
    },
    cancel: (reason) => reader.cancel(reason),
  })
}
