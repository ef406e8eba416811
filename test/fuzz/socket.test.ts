import { connect } from 'node:net'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { type Row, versionsOf, writeFigures } from '../faults/figures.ts'
import { form, inForm } from '../form.ts'
import { secret } from '../faults/http/programs/seen.ts'
import { programCommand } from '../runtimes/targets.ts'
import { randomOfCase } from './mutation.ts'
import { requestBytes } from './request-bytes.ts'

const program = join(import.meta.dirname, '../faults/http/programs/receiver.ts')
const run = inForm({ full: 1, long: Math.floor(Date.now() / 1000) % 1_000_000_000 })
const cases = inForm({ real: 300, full: 1_000, long: 100_000 })
const atOnce = 50
const rows: Row[] = []

/** What an HTTP server may answer to bytes that are no request, beside the receiver's own answers. */
const allowed = new Set([...'100 200 400 401 403 404 405 408 411 413 414 415 417 426 431 501 503 505'.split(' ')])

/** Sends bytes and collects the answer until the server closes, or has answered what came later and is silent here. */
function exchange(url: string, bytes: Uint8Array): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    let received = ''
    // One answer is enough. The server may keep the connection open.
    const isAnswered = (): boolean => /\r\n\r\n/.test(received)
    socket.setTimeout(500, () => {
      if (isAnswered()) socket.destroy()
      else void post(url).finally(() => setImmediate(() => socket.destroy()))
    })
    socket.on('data', (chunk: Buffer) => {
      received += chunk.toString('latin1')
      if (isAnswered()) socket.setTimeout(5)
    })
    socket.on('error', () => {})
    socket.on('close', () => resolve(received))
    socket.end(bytes)
  })
}

/** Posts a message that the receiver takes, and resolves to the text of the answer. */
async function post(url: string): Promise<string> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization: secret },
    body: '{"vin":"A","state":"online"}',
  })
  return response.text()
}

/** What is wrong with what came back. */
function flawOf(received: string): string | undefined {
  if (received.includes(secret)) return 'It tells the secret.'
  const statuses = [...received.matchAll(/HTTP\/1\.[01] (\d{3})/g)].map(([, status = '']) => status)
  const odd = statuses.find((status) => !allowed.has(status))
  return odd === undefined ? undefined : `It has the status ${odd}: ${received.slice(0, 500)}`
}

afterAll(() =>
  writeFigures({
    piece: 'fuzzing-sockets',
    title: 'Broken requests on a connection',
    file: 'test/fuzz/socket.test.ts',
    about:
      'Each request has a fault in its first line, its headers, the framing of its body or the body, and is sent to a ' +
      'real process over its own connection. The process must survive, accept the message that is posted after every hundredth ' +
      'request, give only answers of the table or answers that every HTTP server gives, and reveal no secret.',
    tables: [{ title: `Run ${run}`, rows }],
    versions: versionsOf(['node24', 'bun', 'deno']),
  }),
)

describe.each([
  ['node24', 'with a host', {}],
  ['node24', "with Node's own requests", { ALONE: '1' }],
  ['bun', 'with a host', {}],
  ['deno', 'with a host', {}],
] as const)(
  'whatever bytes come on a connection, on %s %s',
  { concurrent: form !== 'long', timeout: inForm({ full: 300_000, long: 3_600_000 }) },
  (runtime, how, env) => {
    test('the process keeps running and takes messages', async ({ expect }) => {
      await using target = await spawnTarget({ ...programCommand(runtime, program), env })
      const answers = new Map<string, number>()
      const startedAt = performance.now()
      let number = 0
      const loop = async (): Promise<void> => {
        while (number < cases) {
          const own = number++
          const received = await exchange(target.url, requestBytes(randomOfCase(run, own), secret))
          const status = /^HTTP\/1\.[01] (\d{3})/.exec(received)?.[1] ?? 'nothing'
          answers.set(status, (answers.get(status) ?? 0) + 1)
          expect(flawOf(received), `requestBytes(randomOfCase(${run}, ${own}), secret)`).toBeUndefined()
          if (own % 100 > 0) continue
          expect(await post(target.url), `after case ${own} of run ${run}`).toBe('{"text":"Success","code":0}')
        }
      }
      await Promise.all(Array.from({ length: atOnce }, loop))
      const seconds = Math.round((performance.now() - startedAt) / 1000)
      const sorted = [...answers].toSorted(([a], [b]) => a.localeCompare(b))
      rows.push({
        runtime,
        cases,
        seconds,
        answers: sorted.map(([status, count]) => `${count} × ${status}`).join(', '),
      })
      expect(answers.get('200') ?? 0).toBeGreaterThan(cases / 50)
      expect(answers.get('400') ?? 0).toBeGreaterThan(cases / 50)
    })
  },
)
