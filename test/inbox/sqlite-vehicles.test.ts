import type { StoredVehicle } from 'fleethook/extend'
import fc from 'fast-check'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'
import type { VehicleRow } from '../../adapters/inbox/sqlite/file/interface.ts'
import { StateRows } from '../../adapters/inbox/sqlite/states.ts'
import { inForm } from '../form.ts'
import { firstSeqAt, memoryVehicles } from '../../src/testing/kept-message.ts'

const nobody = -1

/** The part of the file that states are in, and what would happen to it in a crash at any moment. */
class Disk {
  readonly clock: FakeClock = fakeClock()
  readonly rows = new Map<string, VehicleRow>()
  /** Everything settled up to `seq` is in the rows, and nothing after `upTo` is settled. */
  seq = nobody
  upTo = nobody
  /** Accepted messages of each vehicle that are not settled, oldest first. */
  waiting = new Map<string, number[]>()
  /** Settled since the last commit, and as of it. */
  #unwritten: { readonly vin: string; readonly seq: number }[] = []
  readonly settled: { readonly vin: string; readonly seq: number }[] = []
  /** Messages up to here are settled and must not come back. */
  readonly forgotten = new Map<string, number>()
  vehicles!: StateRows
  /** The size of each state that a commit wrote. */
  readonly commits: number[][] = []
  /** A commit waits for it. */
  gate: Promise<void> = Promise.resolve()
  #nextSeq = firstSeqAt(this.clock.now())

  begin(): void {
    const { rows } = this
    this.vehicles = new StateRows({
      clock: this.clock,
      file: {
        vehicle: async (vin) => rows.get(vin),
        vehicles: async (after, limit) =>
          [...rows.values()]
            .filter(({ vin }) => vin > after)
            .toSorted((a, b) => (a.vin < b.vin ? -1 : 1))
            .slice(0, limit),
        dueVehicles: async () => [],
        outdatedVehicles: async () => [],
        countVehicles: async () => rows.size,
        removeUnseen: async () => 0,
      },
      commits: { flush: () => this.commit() },
      health: { read: (call) => call() },
      failed: (error) => expect.fail(String(error)),
    })
    this.vehicles.begin({ seq: this.seq, upTo: this.upTo })
  }

  accept(vin: string): void {
    this.#nextSeq = Math.max(this.#nextSeq + 1, firstSeqAt(this.clock.now()))
    this.waiting.set(vin, [...(this.waiting.get(vin) ?? []), this.#nextSeq])
  }

  /** The oldest message of the vehicle is done. */
  settle(vin: string, bytes: number = 20): void {
    const [seq, ...rest] = this.waiting.get(vin) ?? []
    if (seq === undefined) return
    this.waiting.set(vin, rest)
    this.#unwritten.push({ vin, seq })
    this.vehicles.settled(seq, { ...stateOf(vin, seq), bytes, text: () => `${seq}`.padEnd(bytes) })
  }

  async commit(fails = false): Promise<void> {
    const settled = this.#unwritten
    this.#unwritten = []
    const writes = this.vehicles.take()
    this.commits.push(writes?.rows.map(({ text }) => text.length) ?? [])
    await this.gate
    if (fails) {
      this.#unwritten = [...settled, ...this.#unwritten]
      if (writes !== undefined) this.vehicles.giveBack(writes)
      return
    }
    this.settled.push(...settled)
    if (writes === undefined) return
    for (const vin of writes.forgotten) this.rows.delete(vin)
    for (const row of writes.rows) this.rows.set(row.vin, row)
    this.upTo = writes.upTo ?? this.upTo
    this.seq = writes.seq ?? this.seq
    this.vehicles.written(writes)
  }

  /** What a crash would leave must be complete, and not ahead. */
  check(): void {
    const newest = new Map<string, number>()
    const wrong = this.settled.filter(({ vin, seq }) => {
      newest.set(vin, Math.max(seq, newest.get(vin) ?? nobody))
      const isReturned = seq > this.seq && seq <= this.upTo
      const row = this.rows.get(vin)?.seq ?? nobody
      if (seq <= (this.forgotten.get(vin) ?? nobody)) return isReturned || row === seq
      return !isReturned && row < seq
    })
    expect(wrong).toEqual([])
    expect([...this.rows.values()].filter(({ vin, seq }) => seq > (newest.get(vin) ?? nobody))).toEqual([])
  }

  /** The process ends, and the next one applies what it has to. */
  crash(): void {
    for (const { vin, seq } of this.#unwritten.toReversed())
      this.waiting.set(vin, [seq, ...(this.waiting.get(vin) ?? [])])
    this.#unwritten = []
    this.begin()
    const unapplied = this.settled
      .filter(({ seq }) => seq > this.seq && seq <= this.upTo)
      .toSorted((a, b) => a.seq - b.seq)
    for (const { vin, seq } of unapplied)
      if (seq > (this.rows.get(vin)?.seq ?? nobody)) this.vehicles.keep(stateOf(vin, seq))
    this.vehicles.recovered(unapplied.at(-1)?.seq ?? nobody)
  }

  /** The newest settled message of each vehicle. */
  known(): ReadonlyMap<string, number> {
    const known = new Map<string, number>()
    for (const { vin, seq } of [...this.settled, ...this.#unwritten])
      if (seq > (this.forgotten.get(vin) ?? nobody)) known.set(vin, seq)
    return known
  }
}

const stateOf = (of: string, seq: number): StoredVehicle => ({
  vin: of,
  seq,
  seenMs: 0,
  bytes: 1_000,
  text: () => `${seq}`,
})

const vinOf = (n: number): string => `V${String(n).padStart(4, '0')}`
const vin = fc.nat(3).map(vinOf)
type Step = (disk: Disk) => void | Promise<void>
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: vin.map(
      (of): Step =>
        (disk) =>
          disk.accept(of),
    ),
  },
  {
    weight: 5,
    arbitrary: vin.map(
      (of): Step =>
        (disk) =>
          disk.settle(of),
    ),
  },
  {
    weight: 3,
    arbitrary: fc.constant<Step>((disk) => {
      for (let n = 0; n < 300; n += 1) {
        disk.accept(vinOf(n))
        disk.settle(vinOf(n))
      }
    }),
  },
  { weight: 3, arbitrary: fc.constant<Step>((disk) => disk.commit()) },
  { weight: 2, arbitrary: fc.constant<Step>((disk) => disk.commit(true)) },
  {
    weight: 3,
    arbitrary: fc.constantFrom(10, 1_000, 6_000, 12_000).map(
      (ms): Step =>
        (disk) =>
          disk.clock.advance(ms),
    ),
  },
  { weight: 1, arbitrary: fc.constant<Step>((disk) => disk.crash()) },
  {
    weight: 1,
    arbitrary: vin.map((of): Step => async (disk) => {
      const upTo = disk.known().get(of)
      await disk.vehicles.forget(of)
      if (upTo !== undefined) disk.forgotten.set(of, upTo)
    }),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(vin, fc.constantFrom(1, 3, 1_000)).map(([after, limit]): Step => async (disk) => {
      const found = await disk.vehicles.list({ after, limit })
      const expected = [...disk.known()]
        .filter(([of]) => of > after)
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .slice(0, limit)
      expect(found.map((each) => [each.vin, each.seq])).toEqual(expected)
    }),
  },
)

test(
  'after a crash at any step, each settled message is in a row or is applied again, and no row is ahead',
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40, size: 'max' }), async (steps) => {
        const disk = new Disk()
        disk.begin()
        for (const each of steps) {
          await each(disk)
          disk.check()
        }
        disk.vehicles.finish()
        while (disk.vehicles.isDue) await disk.commit()
        await disk.commit()
        for (const [of, seq] of disk.known()) expect([of, disk.rows.get(of)?.seq]).toEqual([of, seq])
      }),
      { numRuns: inForm({ short: 30, full: 500, long: 5_000 }) },
    )
  },
  inForm({ full: 180_000, long: 1_200_000 }),
)

test('a vehicle that is forgotten while it is written stays forgotten', async () => {
  const disk = new Disk()
  disk.begin()
  disk.accept('A')
  disk.settle('A')
  await disk.clock.advance(6_000)
  disk.accept('A')
  disk.settle('A')
  let open = (): void => {}
  disk.gate = new Promise<void>((resolve) => void (open = resolve))
  disk.vehicles.finish()
  const writing = disk.commit()
  const forgetting = disk.vehicles.forget('A')
  await new Promise((resolve) => setImmediate(resolve))
  expect(await disk.vehicles.list({ limit: 10 })).toEqual([])
  open()
  await Promise.all([writing, forgetting])
  expect(await disk.vehicles.load('A')).toBeUndefined()
  expect(disk.rows.size).toBe(0)
})

test('a new file gets every state that is known', async () => {
  const disk = new Disk()
  disk.begin()
  for (const of of ['A', 'B', 'C']) {
    disk.accept(of)
    disk.settle(of)
  }
  expect(await disk.vehicles.count()).toEqual({ vehicles: 3, unwritten: 3 })
  disk.rows.clear()
  disk.vehicles.rewrite()
  while (disk.vehicles.isDue) await disk.commit()
  expect([...disk.rows.keys()].toSorted()).toEqual(['A', 'B', 'C'])
})

test('a new file gets the newest state of a vehicle that is in memory twice', async () => {
  const disk = new Disk()
  disk.begin()
  const settleAll = async (first: number, last: number): Promise<void> => {
    for (let n = first; n <= last; n += 1) {
      disk.accept(vinOf(n))
      disk.settle(vinOf(n))
    }
    await disk.clock.advance(6_000)
    while (disk.vehicles.isDue) await disk.commit()
  }
  // After 50,000 states the inbox begins a new list of those in memory, and keeps the full one.
  await settleAll(0, 50_000)
  await settleAll(0, 0)
  const newest = disk.rows.get(vinOf(0))?.seq
  disk.rows.clear()
  disk.vehicles.rewrite()
  while (disk.vehicles.isDue) await disk.commit()
  expect(disk.rows.get(vinOf(0))?.seq).toBe(newest)
  expect(newest).toBe(disk.known().get(vinOf(0)))
})

test('large states are written in commits of a limited size, and at once when there are many', async () => {
  const disk = new Disk()
  disk.begin()
  for (let n = 0; n < 600; n += 1) {
    disk.accept(vinOf(n))
    disk.settle(vinOf(n), 200_000)
  }
  // No time has passed.
  while (disk.vehicles.isDue) await disk.commit()
  disk.check()
  expect(disk.rows.size).toBeGreaterThan(300)
  expect(Math.max(...disk.commits.map((sizes) => sizes.reduce((sum, size) => sum + size, 0)))).toBeLessThan(1_500_000)
})

test('states in memory have a limit in bytes: those that were set longest ago go first, and what concerns all stays', async () => {
  let dropped = 0
  const store = memoryVehicles((vehicles) => (dropped += vehicles))
  const large = (of: string): StoredVehicle => ({ ...stateOf(of, 1), bytes: 1_048_576 })
  store.keep(stateOf('', 1))
  store.keep(large('often'))
  for (let n = 0; n < 1_000; n += 1) {
    store.keep(large(vinOf(n)))
    if (n % 100 === 0) store.keep(large('often'))
  }
  const { vehicles } = await store.count()
  expect(vehicles).toBeGreaterThan(100)
  expect(vehicles).toBeLessThan(257)
  expect(vehicles + dropped).toBe(1_001)
  const kept = ['', 'often', vinOf(999), vinOf(0)].map((of) => store.load(of) !== undefined)
  expect(kept).toEqual([true, true, true, false])
})
