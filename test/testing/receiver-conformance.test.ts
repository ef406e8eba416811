import { type FleetEvent, createReceiver, type Receiver } from 'fleethook'
import { type Served, serve } from 'fleethook/node'
import { receiverConformance } from '../conformance/receiver-conformance.ts'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'

const secret = 'a-secret-of-the-tests'
const slowVin = 'SLOW'
type Options = Partial<Parameters<typeof createReceiver>[0]>
/** Notes an event when its handler is done. */
type Recording = (events: FleetEvent[], event: FleetEvent) => void

interface Subject {
  readonly receiver: Receiver
  readonly events: FleetEvent[]
}

/** A correct receiver, except for what a test passes. */
function subjectWith(options: Options = {}, record: Recording = (events, event) => void events.push(event)): Subject {
  const events: FleetEvent[] = []
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const receiver = createReceiver({ secret, log, ...options }).on('*', async (event) => {
    if (event.vin === slowVin) await new Promise((resolve) => setTimeout(resolve, 300))
    record(events, event)
  })
  return { receiver, events }
}

/** The reasons of the checks that fail for a server, of all or of those whose names match. */
async function failing(
  served: Served,
  { events }: Subject,
  { mount = '', named = /./, patienceMs = 15_000 } = {},
): Promise<readonly string[]> {
  const server = await serve(served, { port: 0, hostname: '127.0.0.1', signals: false, announce: false, graceMs: 500 })
  const url = server.url + mount
  const checks = receiverConformance({
    url,
    secret,
    patienceMs,
    slowVins: [slowVin],
    events: async () => JSON.parse(JSON.stringify(events)),
  }).filter(({ name }) => named.test(name))
  expect(checks).not.toEqual([])
  const failed: string[] = []
  for (const { name, run } of checks) await run().catch((error: unknown) => failed.push(`${name}: ${String(error)}`))
  await server.close()
  return failed
}

/** A server in front of a receiver that changes the answers. */
function changing(receiver: Receiver, change: (answer: Response, text: string) => Response): Served {
  return {
    fetch: async (request) => {
      const answer = await receiver.fetch(request)
      return change(answer, await answer.clone().text())
    },
  }
}

/** A server in front of a receiver that changes the requests. */
function before(receiver: Receiver, change: (request: Request) => Promise<Request>): Served {
  return { fetch: async (request) => receiver.fetch(await change(request)) }
}

const rebuilt = async (request: Request, change: (body: string) => string): Promise<Request> =>
  request.body === null
    ? request
    : new Request(request.url, {
        method: request.method,
        headers: request.headers,
        body: change(await request.text()),
      })

test('a receiver passes every check at the root', async () => {
  const subject = subjectWith()
  expect(await failing(subject.receiver, subject)).toEqual([])
}, 60_000)

test('a receiver passes every check mounted in an app, also when the url is given with a slash at its end', async () => {
  const subject = subjectWith()
  const app = new Hono().route('/telemetry', subject.receiver.routes())
  expect(await failing(app, subject, { mount: '/telemetry/' })).toEqual([])
}, 60_000)

test('checks have different names, and only those that the options allow are there', () => {
  const all = receiverConformance({ url: 'http://x.test', secret, events: async () => [], slowVins: ['A', 'B'] })
  expect(new Set(all.map(({ name }) => name)).size).toBe(all.length)
  const without = receiverConformance({ url: 'http://x.test', secret, slowVins: ['A'] })
  expect(without.length).toBeLessThan(all.length)
  expect(without.some(({ name }) => name.includes('slow'))).toBe(false)
})

interface Defect {
  readonly defect: string
  readonly options?: Options
  readonly record?: Recording
  readonly serve?: (receiver: Receiver) => Served
  /** Less for a check that has to wait in vain. */
  readonly patienceMs?: number
  /** Which check has to find it. */
  readonly check: RegExp
  readonly complaint: RegExp
}

const aMessage = /A message is answered with exactly the success/
const aStranger = /^A wrong secret is refused$/

const defects: readonly Defect[] = [
  {
    defect: 'its success is 202',
    serve: (receiver) =>
      changing(
        receiver,
        ({ status, headers }, text) => new Response(text, { status: status === 200 ? 202 : status, headers }),
      ),
    check: aMessage,
    complaint: /Expected 200, code 0, and got 202/,
  },
  {
    defect: 'its success has other words',
    serve: (receiver) => changing(receiver, (answer, text) => new Response(text.replace('Success', 'OK'), answer)),
    check: aMessage,
    complaint: /not exactly/,
  },
  {
    defect: 'its answers are plain text',
    serve: (receiver) => changing(receiver, ({ status }, text) => new Response(text, { status })),
    check: aStranger,
    complaint: /Content-Type of the answer is not JSON/,
  },
  {
    defect: 'its refusals are not JSON',
    serve: (receiver) => changing(receiver, (answer) => new Response('no', answer)),
    check: aStranger,
    complaint: /not JSON/,
  },
  {
    defect: 'its refusals show the secret',
    serve: (receiver) => changing(receiver, (answer) => new Response(`{"text":"it is ${secret}"}`, answer)),
    check: aStranger,
    complaint: /shows the secret/,
  },
  {
    defect: 'a header of its answers shows the secret',
    serve: (receiver) =>
      changing(
        receiver,
        ({ status, headers }, text) =>
          new Response(text, { status, headers: [...headers, ['x-hint', `use ${secret}`]] }),
      ),
    check: aStranger,
    complaint: /shows the secret/,
  },
  {
    defect: 'its refusals show what was posted',
    serve: (receiver) => ({
      fetch: async (request) => new Response(await request.clone().text(), await receiver.fetch(request)),
    }),
    check: aStranger,
    complaint: /shows what was posted/,
  },
  {
    defect: 'it lets everybody in',
    options: { secret: false },
    check: aStranger,
    complaint: /Expected 403, code 4, error secret_wrong, and got 200/,
  },
  {
    defect: 'something before it reads the body first',
    serve: (receiver) => before(receiver, (request) => rebuilt(request, (body) => body)),
    check: /before the body has arrived/,
    patienceMs: 500,
    complaint: /was not answered within/,
  },
  {
    defect: 'something before it inflates bodies without a limit of their size',
    options: { limits: { bodyBytes: 4_000_000 } },
    check: /over the limit when inflated/,
    complaint: /Expected 413/,
  },
  {
    defect: 'something before it reads text as ASCII',
    serve: (receiver) => before(receiver, (request) => rebuilt(request, (body) => body.replaceAll(/[^\0-\x7f]/g, '?'))),
    check: /when a chunk ends inside a character/,
    complaint: /Expected "f/,
  },
  {
    defect: 'something before it sends everything twice',
    serve: (receiver) => before(receiver, (request) => rebuilt(request, (body) => `${body}${body}`)),
    check: /once and in order/,
    complaint: /Expected 15 events of a vehicle and got \d+/,
  },
  {
    defect: 'something before it adds an Authorization header',
    serve: (receiver) =>
      before(receiver, async (request) => {
        const headers = new Headers(request.headers)
        headers.append('authorization', 'Basic eDp5')
        return new Request(request, { headers })
      }),
    check: aMessage,
    complaint: /Expected 200, code 0, and got 40\d/,
  },
  {
    defect: 'something before it takes slashes at the end of paths for other paths',
    serve: (receiver) => ({
      fetch: (request) =>
        /\w\/$/.test(new URL(request.url).pathname) ? Response.json({}, { status: 404 }) : receiver.fetch(request),
    }),
    check: /A trailing slash makes no difference at \/services\/collector$/,
    complaint: /got 404/,
  },
  {
    defect: 'it answers 405 without Allow',
    serve: (receiver) =>
      changing(
        receiver,
        ({ status }, text) => new Response(text, { status, headers: { 'content-type': 'application/json' } }),
      ),
    check: /PUT is refused/,
    complaint: /has no Allow header/,
  },
  {
    defect: 'it answers when handlers are done',
    options: { ack: 'handled' },
    check: /slow handler of SLOW/,
    complaint: /within 50 % of the time until the handler was done\. 3 answers took \d+ %, \d+ %, \d+ %/,
  },
  {
    defect: 'it takes one format only',
    options: { format: 'service' },
    check: /message\.data arrives as the same event/,
    complaint: /Expected|within/,
  },
  {
    defect: 'it reads no values',
    options: { decode: false },
    check: /have the type of the catalogue/,
    complaint: /Expected \[81\.5/,
  },
  {
    defect: 'it handles the newest message first',
    record: (events, event) => void events.unshift(event),
    check: /once and in order/,
    complaint: /Expected \[0,1,2/,
  },
]

describe('the suite fails a receiver', () => {
  test.concurrent.each(defects)(
    'when $defect',
    async ({ options, record, serve: serving, patienceMs, check, complaint }) => {
      const subject = subjectWith(options, record)
      const served = serving?.(subject.receiver) ?? subject.receiver
      const failed = await failing(served, subject, { named: check, patienceMs })
      expect(failed).toHaveLength(1)
      expect(failed[0]).toMatch(complaint)
    },
  )
})
