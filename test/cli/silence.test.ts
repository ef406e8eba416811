import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test, vi } from 'vitest'
import { Operator } from '../../adapters/cli/operator.ts'

const { promise: opened, resolve: open } = Promise.withResolvers<ServerResponse>()
const server = createServer((_request, response) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write('data: 1\n\n')
  open(response)
})

afterEach(() => {
  vi.useRealTimers()
  server.closeAllConnections()
  server.close()
})

test('a stream on which even the comments of the receiver no longer come is over, but not while its reader is busy', async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const operator = new Operator({ inbox: 'none', url, secret: 'a-secret' }, 'receiver')
  const items = operator.stream('/feed', new AbortController().signal)
  expect((await items.next()).value).toMatchObject({ data: '1' })
  await vi.advanceTimersByTimeAsync(60_000)

  const next = items.next()
  await vi.advanceTimersByTimeAsync(30_000)
  const response = await opened
  response.write('data: 2\n\n')
  expect((await next).value).toMatchObject({ data: '2' })

  const last = items.next().then(
    () => 'more',
    (error: unknown) => error,
  )
  await vi.advanceTimersByTimeAsync(40_000)
  expect(await last).toBeInstanceOf(Error)
})
