// A receiver as a careful developer would write it in Express, with the answers to what `fleethook conform` asks: it keeps each message in
// a file before the 2xx, and handles the messages of a vehicle one after another. HOLES names the mistakes that it makes instead.
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { timingSafeEqual } from 'node:crypto'
import { join } from 'node:path'
import express from 'express'

/** The mistakes that people make, by name. */
const holes = new Set((process.env['HOLES'] ?? '').split(','))
const has = (hole: string): boolean => holes.has(hole)
const { FOLDER = '.', PORT = '0', WEBHOOK_SECRET = '' } = process.env
const kept = join(FOLDER, 'kept.jsonl')
const handled = join(FOLDER, 'handled.log')

interface Message {
  readonly vin: string
  readonly createdAt: string
  readonly data: Readonly<Record<string, unknown>>
}

function isTheSecret(given: string): boolean {
  if (has('secret-begins')) return given.startsWith(WEBHOOK_SECRET)
  if (has('secret-part')) return WEBHOOK_SECRET.includes(given)
  if (has('secret-case')) return given.toLowerCase() === WEBHOOK_SECRET.toLowerCase()
  if (has('secret-any')) return given !== ''
  const [one, other] = [Buffer.from(given), Buffer.from(WEBHOOK_SECRET)]
  return one.length === other.length && timingSafeEqual(one, other)
}

/** The objects of a body: one, several one after another, or a list. */
function objectsIn(text: string): readonly unknown[] {
  const body = text.trim()
  if (body === '') throw new Error('The body is empty.')
  const found: unknown[] = []
  let [start, depth, isText] = [0, 0, false]
  const list = body.startsWith('[')
  for (let at = list ? 1 : 0; at < body.length; at++) {
    const character = body[at]
    if (isText && character === '\\') at++
    else if (character === '"') isText = !isText
    else if (!isText && (character === '{' || character === '[') && depth++ === 0) start = at
    else if (!isText && (character === '}' || character === ']') && --depth === 0)
      found.push(JSON.parse(body.slice(start, at + 1)))
  }
  if (depth > 0 || isText || found.length === 0) throw new Error('The body is no JSON.')
  if (has('lone-list') && list && found.length === 1) throw new Error('One event is no batch.')
  return has('batch-first') ? found.slice(0, 1) : found
}

/** The one key of a wrapper, or the value as it is. */
const unwrapped = (value: unknown): unknown => {
  if (Object(value).invalid === true) return has('null-zero') ? 0 : null
  const first = Object.entries(Object(value)).find(([name]) => name.endsWith('Value'))
  return first === undefined || has('wrapped') ? value : first[1]
}

function read(value: unknown): Message | undefined {
  const { vin, source = vin, createdAt, time, data, event = data } = Object(value)
  if (typeof source !== 'string' || typeof event !== 'object' || event === null) return undefined
  const pairs = Array.isArray(event) ? event.map((item) => [String(item.key), unwrapped(item.value)]) : undefined
  if (has('time-number') && event !== data && typeof time !== 'number') throw new Error('The time is no number.')
  const at = time === undefined ? createdAt : new Date(Number(time) * 1_000).toISOString()
  const values = Object.entries(pairs === undefined ? event : Object.fromEntries(pairs))
  return {
    vin: source,
    createdAt: String(at),
    data: Object.fromEntries(has('falsy') ? values.filter(([, value]) => value) : values),
  }
}

const seen = new Set<string>()
const newest = new Map<string, string>()
const lanes = new Map<string, Promise<void>>()

function handle(message: Message): void {
  const work = async (): Promise<void> => {
    // A database that is fast once and slow once.
    await new Promise((resolve) => setTimeout(resolve, has('order') ? Math.random() * 20 : 1))
    appendFileSync(handled, `${JSON.stringify(message)}\n`)
  }
  if (has('order')) return void work()
  const lane = (lanes.get(message.vin) ?? Promise.resolve()).then(work)
  lanes.set(message.vin, lane)
  void lane.then(() => lanes.get(message.vin) === lane && lanes.delete(message.vin))
}

/** What makes a message the same as an earlier one. */
function keyOf({ vin, createdAt, data }: Message): string {
  if (has('time-key')) return JSON.stringify([vin, createdAt])
  return JSON.stringify(has('value-key') ? [vin, data] : [vin, createdAt, data])
}

function take(message: Message): void {
  const key = keyOf(message)
  if (seen.has(key) && !has('repeats')) return
  const { vin, createdAt } = message
  if (has('late') && createdAt < (newest.get(vin) ?? '')) return
  newest.set(vin, createdAt)
  seen.add(key)
  if (!has('ack-first')) appendFileSync(kept, `${JSON.stringify(message)}\n`)
  // Only what is in memory knows of it until then.
  setTimeout(handle, has('ack-first') ? 20 : 0, message)
}

/** What was acknowledged before a kill, and not handled. */
function recover(): void {
  const lines = (path: string): readonly string[] => (existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [])
  const done = new Set(lines(handled))
  for (const line of lines(kept).filter((each) => each.endsWith('}'))) {
    const message: Message = JSON.parse(line)
    seen.add(keyOf(message))
    if (!done.has(line)) handle(message)
  }
}

const app = express()
app.disable('x-powered-by')
app.use((request, response, next) => {
  const given = (request.get('authorization') ?? '').replace(/^Splunk /i, '')
  if (request.method !== 'POST' || request.path !== '/') response.sendStatus(404)
  else if (has('header-case') && !request.rawHeaders.includes('authorization')) response.sendStatus(401)
  else if (has('content-type') && request.get('content-type') !== 'application/json') response.sendStatus(415)
  else if (isTheSecret(given)) next()
  else response.sendStatus(401)
})
let busy = 0
app.use((_request, response, next) => {
  if (has('burst') && busy >= 50) return response.sendStatus(503)
  busy++
  response.on('close', () => busy--)
  if (has('burst')) setTimeout(next, 20)
  else next()
})
app.use(express.raw({ type: () => true, limit: has('small') ? '100kb' : '8mb', inflate: !has('no-gzip') }))
app.use((request, response) => {
  try {
    const messages = objectsIn(Buffer.from(request.body ?? '').toString(has('latin1') ? 'latin1' : 'utf8')).map(read)
    for (const message of messages) if (message !== undefined) take(message)
    response.json({ text: 'Success', code: 0 })
  } catch {
    response.sendStatus(has('crashes') ? 500 : 400)
  }
})
recover()
const server = app.listen(Number(PORT), '127.0.0.1', () =>
  console.log(`listening on http://127.0.0.1:${Object(server.address()).port}`),
)
