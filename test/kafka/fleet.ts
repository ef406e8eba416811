/*
 * Receivers behind a balancer, and processes with handlers, on the topic of one test. The sender counts the answers, the handlers
 * write a journal, and `judge` compares the two.
 */
import { randomUUID } from 'node:crypto'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { account } from '../faults/accounting.ts'
import type { Row } from '../faults/figures.ts'
import { type Journal, readJournal, type RunLine } from '../faults/process/journal.ts'
import type { Settings } from '../faults/process/program.ts'
import { createTraffic, type Sent, type Traffic } from '../faults/process/traffic.ts'
import { programCommand, type ServerRuntime } from '../runtimes/targets.ts'
import type { Brokers } from './brokers.ts'
import { createTopics } from './topics.ts'
import { newFolder } from '../folder.ts'

export type Role = 'both' | 'receive' | 'handle'

export interface FleetOptions {
  readonly brokers: Pick<Brokers, 'addresses' | 'otherAddresses'>
  readonly partitions?: number
  /** More settings of the topic, beside replication 3 and `min.insync.replicas` 2. */
  readonly topic?: Readonly<Record<string, string>>
  readonly runtime?: ServerRuntime
  readonly settings?: Partial<Omit<Settings, 'kafka' | 'journal'>>
  readonly inbox?: Partial<Settings['kafka']>
}

/** The processes of one test. */
export interface Fleet extends AsyncDisposable {
  readonly topic: string
  /** A folder for the files of the processes. It is removed at the end. */
  readonly folder: string
  /** The address of the balancer, to which vehicles send. */
  readonly url: string
  /** The processes that run now. */
  readonly members: ReadonlySet<Member>
  /** Starts a process and resolves when it listens. Receivers take part in the balancing as long as they are ready. */
  start(role: Role, changed?: StartOptions): Promise<Member>
  journal(): Pick<Journal, 'runs' | 'gaps'>
}

export interface StartOptions {
  readonly runtime?: ServerRuntime
  readonly settings?: Partial<Omit<Settings, 'kafka' | 'journal'>>
  readonly inbox?: Partial<Settings['kafka']>
  /** Whether it connects to the second listener of the brokers. */
  readonly other?: boolean
}

export interface Member extends Target {
  readonly role: Role
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

export async function createFleet(options: FleetOptions): Promise<Fleet> {
  const { brokers, partitions = 12, runtime = 'node24' } = options
  const topic = `t-${randomUUID().slice(0, 8)}`
  const folder = newFolder('fleet')
  const journal = join(folder, 'journal')
  await createTopics(brokers.addresses, topic, partitions, options.topic)
  const members = new Set<Member>()
  const balancer = await createBalancer(members)
  return {
    topic,
    folder,
    url: balancer.url,
    members,
    async start(role, changed = {}) {
      const settings: Settings = {
        handlerMs: 2,
        // The balancer needs time to notice: docs/operating.md.
        serve: { delayBeforeCloseMs: 1_500 },
        ...options.settings,
        ...changed.settings,
        journal,
        kafka: {
          brokers: changed.other === true ? brokers.otherAddresses : brokers.addresses,
          topic,
          partitions,
          role,
          ...options.inbox,
          ...changed.inbox,
        },
      }
      const program = join(import.meta.dirname, '../faults/process/program.ts')
      const command = programCommand(changed.runtime ?? runtime, program, { SETTINGS: JSON.stringify(settings) })
      const target = await spawnTarget(command)
      const member: Member = { ...target, role }
      members.add(member)
      void target.exited.then(() => members.delete(member))
      return member
    },
    journal: () => readJournal(journal),
    async [Symbol.asyncDispose]() {
      await Promise.all([...members].map((member) => member.stop('SIGKILL')))
      await balancer[Symbol.asyncDispose]()
    },
  }
}

/** A TCP balancer. It asks each receiver every 100 ms whether it is ready, and gives new connections to ready ones in turn. */
async function createBalancer(members: ReadonlySet<Member>): Promise<{ readonly url: string } & AsyncDisposable> {
  const open = new Set<Socket>()
  const watched = new Map<Member, Promise<void>>()
  const ready = new Set<Member>()
  let next = 0
  let isOver = false

  const receivers = (): readonly Member[] => [...members].filter(({ role }) => role !== 'handle')

  /** A balancer without a healthy server gives its connections to any of them. */
  function choices(): readonly Member[] {
    const all = receivers()
    const healthy = all.filter((member) => ready.has(member))
    return healthy.length > 0 ? healthy : all
  }

  const server = createServer((client) => {
    open.add(client)
    client.once('close', () => open.delete(client)).on('error', () => {})
    const tried = new Set<Member>()
    function pass(): void {
      const others = choices().filter((member) => !tried.has(member))
      const member = others[next++ % Math.max(1, others.length)]
      if (member === undefined) {
        // None accepts now: the connection waits, as in the queue of a listening socket.
        tried.clear()
        if (!client.destroyed) setTimeout(pass, 50)
        return
      }
      tried.add(member)
      const { port } = new URL(member.url)
      const upstream = connect({ port: Number(port), host: '127.0.0.1', noDelay: true })
      upstream.once('connect', () => {
        upstream.off('error', pass).on('error', () => client.resetAndDestroy())
        client.pipe(upstream).pipe(client)
        client.once('close', () => upstream.destroy())
        upstream.once('close', () => client.destroy())
      })
      upstream.once('error', pass)
    }
    pass()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))

  /** Each is asked by itself, so one that is slow does not delay what is known of the others. */
  async function watch(member: Member): Promise<void> {
    while (!isOver && members.has(member)) {
      const isReady = await fetch(`${member.url}/readyz`, { signal: AbortSignal.timeout(1_000) }).then(
        ({ ok }) => ok,
        () => false,
      )
      if (isReady) ready.add(member)
      else ready.delete(member)
      await pause(100)
    }
    ready.delete(member)
    watched.delete(member)
  }

  async function look(): Promise<void> {
    while (!isOver) {
      for (const member of receivers()) if (!watched.has(member)) watched.set(member, watch(member))
      await pause(20)
    }
    await Promise.all(watched.values())
  }
  const looking = look()
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('The balancer has no port.')
  return {
    url: `http://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      isOver = true
      await looking
      for (const socket of open) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** The result of one test. */
export interface Found {
  readonly sent: number
  readonly acknowledged: number
  /** The number of answers with another status, by status. */
  readonly refused: Readonly<Record<number, number>>
  /** The number of requests whose connection ended, by error. */
  readonly unanswered: Readonly<Record<string, number>>
  /** Acknowledged and never handled. */
  readonly lost: readonly string[]
  /** Acknowledged messages that started before a run of an earlier message of the vehicle had ended. */
  readonly outOfOrder: readonly string[]
  /** Handled more than once. */
  readonly again: number
  /** Handled again without `redelivered`. */
  readonly unmarked: readonly string[]
  readonly longestAckMs: number
  /** The longest time from an acknowledgment to the start of the handler. */
  readonly longestWaitMs: number
}

export const nameOf = ({ vin, number }: { readonly vin: string; readonly number: number }): string => `${vin} ${number}`

/** Clocks of two processes differ by less than this, in milliseconds. */
const clockMs = 5

/** Compares what the sender counted with what the handlers wrote. Replays do not count. */
export function judge(sent: readonly Sent[], { runs }: Pick<Journal, 'runs' | 'gaps'>): Found {
  const first = new Map<string, RunLine>()
  const ends = new Map<string, number>()
  let again = 0
  const unmarked: string[] = []
  for (const run of runs.filter(({ replayed }) => !replayed).toSorted(byStart)) {
    const name = nameOf(run)
    ends.set(name, Math.min(ends.get(name) ?? Infinity, run.atMs))
    if (first.has(name)) {
      again += 1
      if (!run.redelivered && run.attempt === 1) unmarked.push(name)
    } else first.set(name, run)
  }
  const acknowledged = sent.filter(({ status }) => status === 200)
  const outOfOrder: string[] = []
  let longestWaitMs = 0
  for (const messages of Map.groupBy(acknowledged, ({ vin }) => vin).values()) {
    let endedAtMs = -Infinity
    for (const message of messages.toSorted((a, b) => a.number - b.number)) {
      const run = first.get(nameOf(message))
      if (run === undefined) continue
      if (run.startedAtMs + clockMs < endedAtMs) outOfOrder.push(nameOf(message))
      endedAtMs = Math.max(endedAtMs, ends.get(nameOf(message)) ?? run.atMs)
      longestWaitMs = Math.max(longestWaitMs, run.startedAtMs - message.endedAtMs)
    }
  }
  const refused: Record<number, number> = {}
  for (const { status } of sent.filter((each) => each.status >= 300)) refused[status] = (refused[status] ?? 0) + 1
  const unanswered: Record<string, number> = {}
  for (const { error = 'unknown' } of sent.filter(({ status }) => status === 0))
    unanswered[error] = (unanswered[error] ?? 0) + 1
  return {
    sent: sent.length,
    acknowledged: acknowledged.length,
    refused,
    unanswered,
    lost: acknowledged.map(nameOf).filter((name) => !first.has(name)),
    outOfOrder,
    again,
    unmarked,
    longestAckMs: Math.round(
      acknowledged.reduce((longest, each) => Math.max(longest, each.endedAtMs - each.sentAtMs), 0),
    ),
    longestWaitMs: Math.round(longestWaitMs),
  }
}

const byStart = (a: RunLine, b: RunLine): number => a.startedAtMs - b.startedAtMs

/** Resolves when every acknowledged message of the sender was handled. Rejects after this time. */
export async function handled(fleet: Fleet, traffic: Pick<Traffic, 'acknowledged'>, withinMs: number): Promise<void> {
  const waiting = (): readonly string[] => {
    const names = new Set(fleet.journal().runs.map(nameOf))
    return [...traffic.acknowledged].filter((name) => !names.has(name)).slice(0, 5)
  }
  await expect.poll(waiting, { timeout: withinMs, interval: 200, message: 'acknowledged and not handled' }).toEqual([])
}

/** Resolves when no handler has run for ten seconds. */
async function quiet(fleet: Fleet): Promise<void> {
  for (let last = -1, count = 0; count !== last;) {
    last = count
    await pause(10_000)
    count = fleet.journal().runs.length
  }
}

export interface Load {
  /** Default 500. */
  readonly ratePerSecond?: number
  /** Default 200. */
  readonly vehicles?: number
  /** How long the last messages may take, in milliseconds. Default 60,000. */
  readonly handledWithinMs?: number
  /** Each message gets a connection of its own, as from a proxy with `http-reuse never`. Default `false`. */
  readonly opensConnections?: boolean
  /** The promise does not cover what happens: no message may be awaited. Default `false`. */
  readonly mayLose?: boolean
}

/** The result of {@link underLoad}, with its data. */
export interface Loaded extends Found {
  readonly all: readonly Sent[]
}

/** Sends to the fleet while something happens, waits until everything is handled, and judges. */
export async function underLoad(
  fleet: Fleet,
  load: Load,
  happens: (traffic: Pick<Traffic, 'sent' | 'acknowledged'>) => Promise<void>,
): Promise<Loaded> {
  const { ratePerSecond = 500, vehicles = 200, handledWithinMs = 60_000, mayLose = false } = load
  const opensConnections = load.opensConnections === true ? 'all' : 'none'
  const vins = Array.from({ length: vehicles }, (_, n) => `V${n}`)
  const traffic = createTraffic({ vins, ratePerSecond, goesOn: true, opensConnections })
  let isOver = false
  const pouring = traffic.pour(fleet.url, () => isOver)
  try {
    await expect.poll(() => traffic.acknowledged.size, { timeout: 60_000, interval: 20 }).toBeGreaterThan(vehicles)
    await happens(traffic)
    await pause(1_000)
  } finally {
    isOver = true
    await pouring
  }
  if (mayLose) await quiet(fleet)
  else await handled(fleet, traffic, handledWithinMs)
  return { ...judge(traffic.sent, fleet.journal()), all: traffic.sent }
}

/** Messages that are neither handled nor inside a gap, each with its story. */
export const unaccounted = ({ all }: Loaded, fleet: Fleet): readonly string[] =>
  account({ sent: all, journal: { ...fleet.journal(), dead: [], edges: [] }, refusals: new Map() }).violations
    .unaccounted

/** The part of a result that must be empty after every fault: lost, out of order, and handled twice without a mark. */
export const broken = ({ lost, outOfOrder, unmarked }: Found): Pick<Found, 'lost' | 'outOfOrder' | 'unmarked'> => ({
  lost,
  outOfOrder,
  unmarked,
})
export const nothingBroken: ReturnType<typeof broken> = { lost: [], outOfOrder: [], unmarked: [] }

const sumOf = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0)

/** One row of a table of figures. */
export const rowOf = (what: string, found: Found): Row => ({
  'what happened': what,
  acknowledged: found.acknowledged,
  refused: sumOf(found.refused),
  'connection ended': sumOf(found.unanswered),
  lost: found.lost.length,
  'out of order': found.outOfOrder.length,
  'handled again': found.again,
  'longest ack, ms': found.longestAckMs,
  'longest wait, ms': found.longestWaitMs,
})
