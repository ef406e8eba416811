import { readFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { createPost, exchange } from '../../adapters/cli/exchange.ts'
import { Operator } from '../../adapters/cli/operator.ts'
import { readWithin } from '../../src/base/read-within.ts'
import { postByFetch } from '../../src/service/sandbox/options.ts'
import { posting } from '../../adapters/cli/conform/post.ts'
import { filesUnder } from '../house/project.ts'

/** A server whose answers have no end. `sent`: so many bytes have left it. */
async function endless(contentType: string, begin: string, more: string) {
  const state = { sent: 0, open: 0, url: '' }
  const flow = (response: ServerResponse): void => {
    while (!response.destroyed && response.write(more)) state.sent += more.length
    state.sent += more.length
  }
  const server = createServer((request, response) => {
    request.resume()
    state.open += 1
    response.on('close', () => (state.open -= 1))
    response.writeHead(200, { 'content-type': contentType }).write(begin)
    if (more === '') return
    response.on('drain', () => flow(response))
    flow(response)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return state
}

const most = 100 * 1_048_576
const block = 'x'.repeat(65_536)
const operatorOf = (url: string): Operator => new Operator({ inbox: 'none', url, secret: 'a-secret' }, 'receiver')

async function readAll(operator: Operator): Promise<number> {
  let items = 0
  for await (const _ of operator.stream('/feed', new AbortController().signal)) items += 1
  return items
}

test.each([
  ['application/json', '{"letters":[', '{},'.repeat(20_000)],
  ['text/html', '<html>', block],
])('a command that asks for %s reads no answer without an end', async (type, begin, more) => {
  const server = await endless(type, begin, more)
  await expect(operatorOf(server.url).ask('GET', '/dead')).rejects.toThrow('The answer has no end')
  await expect.poll(() => server.open).toBe(0)
  expect(server.sent).toBeLessThan(most)
})

test.each([
  ['one line without an end', 'text/event-stream', 'data: ', block, 'The answer has no end'],
  ['lines that are none of a stream', 'text/event-stream', '', `${block}\n`, 'The answer has no end'],
  ['comments', 'text/event-stream', '', `: ${block}\n\n`, 'The answer has no end'],
  ['one item without an end', 'text/event-stream', '', `data: ${block}\n`, 'The answer has no end'],
  ['a page', 'text/html', '<html>', block, 'The answer has no end'],
])('a command that follows a feed reads no endless answer: %s', async (_what, type, begin, more, problem) => {
  const server = await endless(type, begin, more)
  await expect(readAll(operatorOf(server.url))).rejects.toThrow(problem)
  await expect.poll(() => server.open).toBe(0)
  expect(server.sent).toBeLessThan(most)
})

test('what is no feed is said to be none', async () => {
  const server = createServer((_request, response) => response.end('{"hello":1}'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const operator = operatorOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  await expect(readAll(operator)).rejects.toThrow('The answer is not the feed of a receiver.')
})

test.each([
  ['long', block],
  ['slow', ''],
])('a message that is posted has its answer with the status, when its body is endless and %s', async (_how, more) => {
  const server = await endless('application/json', '{"text":', more)
  const began = performance.now()
  const { status, text } = await exchange(server.url, { body: '{}' })
  expect(status).toBe(200)
  expect(text.startsWith('{"text":')).toBe(true)
  expect(text.length).toBeLessThan(5_000)
  expect(performance.now() - began).toBeLessThan(20_000)
  await expect.poll(() => server.open).toBe(0)
  expect(server.sent).toBeLessThan(50_000_000)
})

test('the sandbox and the suite of `fleethook conform` do not wait for the end of an answer', async () => {
  const server = await endless('application/json', '{', block)
  const { post, close } = createPost()
  onTestFinished(close)
  const outgoing = { url: server.url, headers: {}, body: '{}', verify: true, signal: new AbortController().signal }
  expect(await post(outgoing)).toBe(200)
  expect(await postByFetch(outgoing)).toBe(200)
  expect((await posting({ url: server.url })({})).status).toBe(200)
  await expect.poll(() => server.open).toBe(0)
})

test('a body is read within its limits of bytes and time, and is undefined beyond them', async () => {
  const of = (chunks: number, closes: boolean): Response => {
    let left = chunks
    return new Response(
      new ReadableStream({
        pull(to) {
          left -= 1
          if (left >= 0) to.enqueue(new Uint8Array(10))
          else if (closes) to.close()
          else return new Promise(() => {})
        },
      }),
    )
  }
  const limits = { mostBytes: 30, mostMs: 100 }
  expect((await readWithin(of(3, true), limits))?.length).toBe(30)
  expect(await readWithin(of(4, true), limits)).toBeUndefined()
  expect(await readWithin(of(1, false), limits)).toBeUndefined()
  expect(await readWithin(new Response(null), limits)).toEqual(new Uint8Array())
})

test('no other code of the package reads the whole body of an answer', () => {
  const reads = /\b(?:answer|answered|response|reply)\b[^\n]{0,40}\.(?:text|json|arrayBuffer|blob|bytes)\(\)/
  const own = [
    // The page asks the receiver that it came from. The others read what their own process or object has made.
    'adapters/inbox/durable-object/object.ts',
    'adapters/inbox/durable-object/objects.ts',
    'src/inspector/page/map.tsx',
    'src/inspector/page/receiver.ts',
    'src/service/sandbox/sandbox.ts',
    'src/testing/deliver.ts',
  ]
  const found = ['src', 'adapters'].flatMap(filesUnder).filter((file) => {
    const source = readFileSync(join(import.meta.dirname, '../..', file), 'utf8')
    return !file.endsWith('.generated.ts') && reads.test(source)
  })
  expect(found.toSorted()).toEqual(own.toSorted())
})
