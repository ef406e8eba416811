/* Several readers on postgresInbox, held to the same checks as readers of an inbox in one process. */
import { setImmediate } from 'node:timers/promises'
import type { Inbox, InboxHost, Waiting } from 'fleethook/extend'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { Database } from '../../adapters/inbox/postgres/client.ts'
import { Store } from '../../adapters/inbox/postgres/store.ts'
import { Tables } from '../../adapters/inbox/postgres/tables.ts'
import { systemClock } from '../../src/base/clock.ts'
import type { InboxUnderTest } from '../../src/testing/inbox-conformance.ts'
import { readersConformance } from '../conformance/readers-conformance.ts'
import { hasPostgres } from '../once/servers.ts'
import { sceneOfFile } from './scene.ts'

const scene = sceneOfFile()

/** A process, which can be killed. */
interface Process {
  readonly schema: string
  isOver: boolean
  writing: number
  readonly query: (text: string, values?: unknown[]) => Promise<{ rows: unknown[] }>
}

function processOn(schema: string): Process {
  const process: Process = {
    schema,
    isOver: false,
    writing: 0,
    async query(text, values) {
      if (process.isOver) throw new Error('The process is gone.')
      const isWrite = /DELETE|UPDATE|INSERT/.test(text)
      if (isWrite) process.writing += 1
      try {
        return await scene.pool.query(text, values)
      } finally {
        if (isWrite) process.writing -= 1
      }
    },
  }
  return process
}

/** The checks have dead letters of long ago. */
const kept = { keepForMs: Date.now(), retention: { dead: { forMs: Date.now() } } }

const pages = async function* (page: readonly Waiting[]): AsyncGenerator<readonly Waiting[]> {
  yield page
}

/** One side of an inbox: what was handed over of it, and its tables. */
class Side {
  readonly got: Waiting[] = []
  readonly #schema: string
  readonly #number: () => Promise<number>

  constructor(schema: string, number: () => Promise<number>) {
    this.#schema = schema
    this.#number = number
  }

  async tables(): Promise<Tables> {
    return new Tables(this.#schema, await this.#number())
  }

  async store(): Promise<Store> {
    const db = new Database(scene.pool, this.#schema, systemClock)
    const { keepForMs } = kept
    return new Store(
      db,
      systemClock,
      { keepForMs, deadForMs: keepForMs, confirmMs: 10_000 },
      undefined,
      await this.tables(),
    )
  }

  async has(ids: readonly string[]): Promise<void> {
    await vi.waitFor(() => expect(this.got.map((each) => each.id)).toEqual(expect.arrayContaining([...ids])))
  }

  /** Resolves when all that waits was handed over, and a reader that no process has is gone. */
  async isThere(): Promise<void> {
    await vi.waitFor(async () => {
      const { rows } = await scene.pool.query(`SELECT id FROM ${(await this.tables()).waiting} ORDER BY seq`)
      expect(this.got.map((each) => each.id)).toEqual(rows.map(({ id }) => id))
    })
    const isNoted = `SELECT FROM ${this.#schema}.branch WHERE used_at = 0 AND gone_at IS NULL`
    await vi.waitFor(async () => expect((await scene.pool.query(isNoted)).rowCount).toBe(0))
  }

  readonly archive: NonNullable<Inbox['archive']> = {
    list: async (what, which) => (await this.store()).list(what, which),
    revive: async (id) => {
      if ((await (await this.store()).replay([id])) === 0) return undefined
      await vi.waitFor(() => expect(this.got.filter((each) => each.id === id)).toHaveLength(2))
      return this.got.find((each) => each.id === id)
    },
    discard: async (id) => (await (await this.store()).discard([id])) === 1,
  }
}

/** An inbox as if nobody shared it: what is put is there, and what waits comes with `open`. */
function alone(inbox: Inbox, side: Side, isFront: boolean): Inbox {
  const own: Partial<Inbox> = {
    archive: side.archive,
    async open(options) {
      const opened = await inbox.open(options)
      await side.isThere()
      return { ...opened, waiting: pages(side.got.splice(0)) }
    },
    async put(messages, from) {
      await inbox.put(messages, from)
      if (isFront) await side.has(messages.map(({ id }) => id))
    },
  }
  return new Proxy(inbox, {
    get(target, name) {
      const found: unknown = Reflect.get(own, name) ?? Reflect.get(target, name)
      return typeof found === 'function' ? found.bind(target) : found
    },
  })
}

/** Keeps what the inbox hands over, too. */
const noting =
  (got: Waiting[], { on }: InboxHost): InboxHost['on'] =>
  (event) => {
    if (event.type === 'waiting') got.push(...event.messages)
    on(event)
  }

function inboxOn(process: Process, settings: InboxHost): Inbox {
  const create = postgresInbox({ db: process, schema: process.schema, leaseMs: 3_000, idleMs: 20, ...kept })
  const side = new Side(process.schema, async () => 0)
  const inbox = create({ ...settings, on: noting(side.got, settings) })
  const { reader } = inbox
  const front = alone(inbox, side, true)
  if (reader === undefined) return front
  const of: Inbox['reader'] = (name, own) => {
    const number = async (): Promise<number> =>
      Number(
        (await scene.pool.query(`SELECT number FROM ${process.schema}.branch WHERE name = $1`, [name])).rows[0]?.number,
      )
    const its = new Side(process.schema, number)
    return alone(reader(name, { ...own, on: noting(its.got, own) }), its, false)
  }
  return new Proxy(front, { get: (target, name) => (name === 'reader' ? of : Reflect.get(target, name)) })
}

describe.skipIf(!hasPostgres)('postgresInbox has several readers', () => {
  const processes = new Map<Inbox, Process>()
  let count = 0
  const made = (process: Process, settings: InboxHost): Inbox => {
    const inbox = inboxOn(process, settings)
    processes.set(inbox, process)
    return inbox
  }
  const subject: InboxUnderTest = {
    async create(settings) {
      count += 1
      const schema = `readers_${count}`
      await scene.prepare(schema)
      return made(processOn(schema), settings)
    },
    async reopen(inbox, settings) {
      const process = processes.get(inbox)
      if (process === undefined) throw new Error('Not an inbox of this test.')
      do await setImmediate()
      while (process.writing > 0)
      process.isOver = true
      const { schema } = process
      await scene.pool.query(`UPDATE ${schema}.process SET until = clock_timestamp() - interval '1 s'`)
      await scene.pool.query(`UPDATE ${schema}.branch SET used_at = 0`)
      // As after ten minutes: until then, a process that lacks the branch handles nothing.
      await scene.pool.query(`DELETE FROM ${schema}.handling`)
      return made(processOn(schema), settings)
    },
  }
  // A receiver that closes waits for its readers, and some of these were killed.
  afterAll(() => {
    for (const process of processes.values()) process.isOver = true
  })
  test.each(readersConformance(subject).map((check) => [check.name, check] as const))('%s', (_, { run }) => run())
})
