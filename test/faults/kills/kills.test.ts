import { afterAll, describe, expect, test } from 'vitest'
import { form, inForm } from '../../form.ts'
import { type Platform, platforms } from '../../workers/command.ts'
import { durableSource, memorySource } from '../../workers/programs/durable.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import { type Found, underLoad, type Victim } from './kills.ts'
import { onObjects, onSqlite } from './victims.ts'

/** Which page of figures a row is in. */
type Piece = 'process-killed' | 'process-edges' | 'workers-kill' | 'workers-edges'

interface Kill {
  readonly piece: Piece
  /** What is ended, and how. */
  readonly what: Row
  readonly open: () => Promise<Victim>
  readonly rounds: number
  /** Default: nothing is handled again without a mark. */
  readonly promises?: (found: Found) => void
}

const processes = [
  { runtime: 'node24', rounds: inForm({ real: 1, full: 6, long: 100 }) },
  { runtime: 'node24', thread: true, rounds: inForm({ real: 1, full: 3, long: 100 }) },
  { runtime: 'bun', rounds: inForm({ real: 1, full: 2, long: 100 }) },
  { runtime: 'deno', rounds: inForm({ real: 1, full: 2, long: 100 }) },
] as const
const vehicles = (count: number): readonly string[] => Array.from({ length: count }, (_, n) => `V${n}`)
const workers = vehicles(12)
const changing = { edges: 'numbers', handlerMs: 5, vehicles: { fields: ['BatteryLevel'] } } as const
const rounds = inForm({ real: 1, full: 4, long: 100 })
const nameOf = (given: (typeof processes)[number]): string =>
  'thread' in given ? `${given.runtime}, thread` : given.runtime

const kills: readonly Kill[] = [
  ...processes.flatMap((given) =>
    (['SIGKILL', 'SIGTERM'] as const).map((signal): Kill => ({
      ...{ piece: 'process-killed', rounds: given.rounds, what: { runtime: nameOf(given), signal } },
      open: () => onSqlite({ ...given, signals: [signal] }),
      promises({ duplicates, unmarked, dead }) {
        expect(unmarked).toEqual([])
        // A deploy handles nothing twice.
        if (signal === 'SIGTERM') expect({ duplicates, dead }).toEqual({ duplicates: [], dead: 0 })
      },
    })),
  ),
  {
    ...{ piece: 'process-killed', rounds: inForm({ real: 2, full: 4, long: 40 }) },
    what: { runtime: 'node24, a clock that jumps by an hour', signal: 'both' },
    open: () => onSqlite({ runtime: 'node24', clockJumpMs: 3_600_000, signals: ['SIGKILL', 'SIGTERM'] }),
  },
  {
    ...{ piece: 'process-killed', rounds: inForm({ real: 3, full: 6, long: 100 }) },
    what: { runtime: 'node24, rows of fleethook/once', signal: 'SIGKILL' },
    open: () => onSqlite({ runtime: 'node24', rows: 'marked' }),
    promises: ({ duplicates }) => expect(duplicates).toEqual([]),
  },
  ...inForm<readonly Platform[]>({ real: ['workerd'], full: platforms }).map((platform): Kill => ({
    ...{ piece: 'workers-kill', rounds, what: { inbox: 'durableObjectInbox', platform } },
    open: () => onObjects({ platform, source: durableSource({ handlerMs: 20 }) }),
    promises({ duplicates, unmarked }) {
      expect(unmarked).toEqual([])
      // At most one message of each vehicle is under way when the process is killed.
      expect(duplicates.length).toBeLessThanOrEqual(rounds * workers.length)
    },
  })),
  // `test/vehicles/model.test.ts` ends a receiver at any point, so these are for the nights.
  ...inForm<readonly (typeof processes)[number][]>({ real: [], full: processes }).map((given): Kill => ({
    ...{ piece: 'process-edges', rounds: inForm({ full: 2, long: 40 }), what: { runtime: nameOf(given) } },
    open: () => onSqlite({ ...given, edges: true }),
  })),
  ...inForm<readonly ('killed' | 'evicted')[]>({ real: [], full: ['killed', 'evicted'] }).map((how): Kill => ({
    ...{ piece: 'workers-edges', rounds, what: { 'the objects are': how } },
    open: () => onObjects({ platform: 'workerd', source: durableSource(changing), how, edges: true }),
  })),
]

const rows: Record<Piece, Row[]> = {
  'process-killed': [],
  'process-edges': [],
  'workers-kill': [],
  'workers-edges': [],
}

function note(piece: Piece, what: Row, given: number, found: Found): void {
  const { acknowledged, handled, lost, dead, outOfOrder, duplicates, changes, reportedAgain } = found
  rows[piece].push({
    ...{ ...what, rounds: given },
    ...(piece.endsWith('edges')
      ? { changes, 'reported again': reportedAgain }
      : {
          ...{ acknowledged, handled, lost: lost.length, 'dead letters': dead },
          ...{ 'out of order': outOfOrder.length, 'handled again': duplicates.length },
        }),
  })
}

const loadOf = (piece: Piece): { readonly vins: readonly string[]; readonly field?: string } =>
  piece.startsWith('workers') ? { vins: workers, field: 'BatteryLevel' } : { vins: vehicles(32) }

describe('processes that are ended under load lose no acknowledged message and keep the order of each vehicle', () => {
  test.each(kills.map((kill) => [`${kill.piece}: ${Object.values(kill.what).join(', ')}`, kill] as const))(
    '%s',
    async (_, { piece, what, open, rounds, promises }) => {
      await using victim = await open()
      const found = await underLoad(victim, {
        ...{ ...loadOf(piece), rounds },
        // Two messages of each vehicle make a change. And fewer than the handlers can take: the backlog must not grow from round to round.
        ...(piece === 'process-edges' ? { acksBefore: 64, ratePerSecond: 500 } : {}),
        ...(piece === 'workers-edges' ? { ratePerSecond: 150 } : {}),
      })
      note(piece, what, rounds, found)
      const { lost, outOfOrder, settledAgain, acknowledged, changes } = found
      expect({ lost, outOfOrder, settledAgain }).toEqual({ lost: [], outOfOrder: [], settledAgain: [] })
      expect(acknowledged).toBeGreaterThan(rounds * 20)
      if (piece.endsWith('edges')) expect(changes).toBeGreaterThan(rounds * 10)
      promises?.(found)
    },
    inForm({ full: 240_000, long: 3_600_000 }),
  )

  test('control: without a mark, some rows are written twice', { timeout: 600_000 }, async () => {
    await using victim = await onSqlite({ runtime: 'node24', rows: 'unmarked' })
    const found = await underLoad(victim, { ...loadOf('process-killed'), rounds: 2 })
    note('process-killed', { runtime: 'node24, rows without a mark, the control', signal: 'SIGKILL' }, 2, found)
    expect(found.duplicates).not.toEqual([])
  })

  test('control: a Worker with its inbox in memory loses some', { timeout: 600_000 }, async () => {
    const source = memorySource({ handlerMs: 20 })
    await using victim = await onObjects({ platform: 'workerd', source, patienceMs: 1_000 })
    const found = await underLoad(victim, { ...loadOf('workers-kill'), rounds })
    note('workers-kill', { inbox: 'memoryInbox, the control', platform: 'workerd' }, rounds, found)
    expect(found.lost).not.toEqual([])
  })
})

const why = '[why](../reliability.md#a-message-that-ends-its-process)'
const pages: Readonly<Record<Piece, readonly [title: string, about: string]>> = {
  'process-killed': [
    'Receivers that are killed under load',
    `A receiver with the SQLite inbox. 32 vehicles each send their next message when the last one was answered. Handlers take 2 to 4 ms, 8 at once. Each round ends the process at a random moment up to 400 ms after its twentieth acknowledgment, and the next process continues. The sender counts the acknowledgments. Dead letters: messages that three kills met before their handler had ended (${why}). Handled again: the handler had run, and the process ended before that was on the disk. Rows: the handler writes one into a database of its own, with a mark of \`fleethook/once\` or without.`,
  ],
  'process-edges': [
    'Changes of vehicles through crashes',
    'A receiver with the SQLite inbox and the part `vehicles`. 32 vehicles send 500 messages a second, each in its order, and each message changes a field. Each round kills the process at a random moment, and the next process continues. Reported again: the handler of the change had run, and the process ended before that was on the disk. The id of the change was the same.',
  ],
  'workers-kill': [
    'Workers killed under load',
    `A Worker takes messages of ${workers.length} vehicles at once. Handlers take 20 ms. The test kills the Worker with SIGKILL at a random moment, again and again on the same storage. Then it starts the Worker once more and sends nothing. Dead letters: messages that three kills in a row met before their handler had ended (${why}). The test counts acknowledgments and handled messages outside the process.`,
  ],
  'workers-edges': [
    'Changes of vehicles through the ends of Durable Objects',
    `A Worker with Durable Objects and the part \`vehicles\`. ${workers.length} vehicles each send their next message when the last one was answered, and each message changes a field. Each round kills workerd with SIGKILL at a random moment, or ends each of the four objects, which go on under load. Reported again: the handler of the change had run, and the object ended before that was stored. The id of the change was the same.`,
  ],
}

afterAll(async () => {
  if (form !== 'long') return
  for (const piece of ['process-killed', 'process-edges', 'workers-kill', 'workers-edges'] as const) {
    const [title, about] = pages[piece]
    const versions = versionsOf(piece.startsWith('workers') ? ['workerd'] : ['bun', 'deno'])
    const tables = [{ title: 'Rounds', rows: rows[piece] }]
    await writeFigures({ piece, title, about, tables, versions, file: 'test/faults/kills/kills.test.ts' })
  }
})
