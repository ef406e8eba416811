import * as fc from 'fast-check'
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Clock, GapReason } from 'fleethook'
import type { Inbox, InboxGap, InboxMessage, KeptGap } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { createFiles } from './sqlite-files.ts'
import { elapsedMs } from '../../src/base/clock.ts'
import { moveToFile } from './sqlite-store.ts'
import { settingsOf, waitingIn } from './sqlite-settings.ts'
import { DeliveryIds } from '../../src/testing/kept-message.ts'

const files = createFiles()
const startMs = Date.UTC(2026, 10, 21, 10)

const step = fc.record({
  does: fc.constantFrom(
    'put',
    'put',
    'settle',
    'refuse',
    'emit',
    'emit',
    'start',
    'move',
    'stop',
    'crash',
    'pass',
    'setBack',
  ),
  which: fc.nat(100),
})

interface Life {
  readonly inbox: Inbox
  readonly ids: DeliveryIds
  /** What the receiver has to report. */
  readonly open: InboxGap[]
  /** The ids of waiting messages, by text, to settle them with. */
  readonly waiting: Map<string, string>
}

interface Loss {
  readonly vin?: string
  /** By the clock that is never set back. */
  readonly atMs: number
  /** The number of times that the clock had been set back before. */
  readonly setBacks: number
}

/** Some receivers with a file each, and what was sent to them. */
class Fleet {
  readonly #folder = dirname(files.path())
  readonly #fake = fakeClock(startMs)
  /** The errors of the clock, from the first one to now. */
  readonly #offsets = [0]
  readonly #lives: (Life | undefined)[]
  readonly #losses: Loss[] = []
  readonly #emitted: { readonly vin?: string | undefined; readonly fromMs: number; readonly toMs: number }[] = []
  /** Stored messages: whether they were settled. */
  readonly #stored = new Map<string, boolean>()
  #sent = 0
  readonly #clock: Clock = {
    now: () => this.#fake.now() + (this.#offsets.at(-1) ?? 0),
    elapsedMs: this.#fake.now,
    after: this.#fake.after,
  }

  constructor(count: number) {
    mkdirSync(this.#folder, { recursive: true })
    this.#lives = Array.from({ length: count }, () => undefined)
  }

  #path(at: number): string {
    return join(this.#folder, `inbox-${at}.db`)
  }

  async start(at: number): Promise<void> {
    if (this.#lives[at] !== undefined) return
    const open: InboxGap[] = []
    const openGaps = (): KeptGap[] =>
      open.map((gap) => ({ ...gap, missed: gap.missed ?? 0, toMs: gap.toMs ?? this.#clock.now() }))
    const { settings } = settingsOf({ clock: this.#clock, receiver: { openGaps } })
    const inbox = sqliteInbox({ path: this.#path(at), waitMs: 0 })(settings)
    const opened = await inbox.open()
    open.push(...(opened.gaps ?? []))
    const ids = new DeliveryIds()
    if (opened.lastId !== undefined) ids.follow(opened.lastId)
    const waiting = new Map<string, string>()
    let before = ''
    for (const { id } of await waitingIn(opened)) {
      const text = (await inbox.claim(id))?.message.text ?? ''
      expect(waiting.has(text)).toBe(false)
      expect(id > before).toBe(true)
      before = id
      waiting.set(text, id)
    }
    this.#lives[at] = { inbox, ids, open, waiting }
  }

  /** Moves what waits in the file of a receiver that does not run to another one, unless one of them runs. */
  #move(from: number, to: number): void {
    if (from === to || this.#lives[from] !== undefined || !existsSync(this.#path(from))) return
    const sign = { nowMs: this.#clock.now(), uptimeMs: Math.floor(elapsedMs(this.#clock)) }
    const move = (): unknown => moveToFile(this.#path(from), this.#path(to), sign)
    if (this.#lives[to] === undefined) move()
    else expect(move).toThrow('Another receiver already uses the inbox')
  }

  async stop(at: number): Promise<void> {
    await this.#lives[at]?.inbox.close()
    this.#lives[at] = undefined
  }

  /** The file stays as it was, and its lock is free. */
  async #crash(at: number): Promise<void> {
    if (this.#lives[at] === undefined) return
    const path = this.#path(at)
    const saved = ['', '-wal'].filter((suffix) => existsSync(path + suffix))
    for (const suffix of saved) copyFileSync(path + suffix, `${this.#folder}/saved${suffix}`)
    await this.stop(at)
    rmSync(`${path}-wal`, { force: true })
    for (const suffix of saved) copyFileSync(`${this.#folder}/saved${suffix}`, path + suffix)
  }

  #message(life: Life, kind: InboxMessage['kind'], text: string): InboxMessage {
    const receivedAt = this.#clock.now()
    const lane = kind === 'gap' ? '*gap' : 'VIN'
    return { id: life.ids.next(receivedAt), lane, receivedAt, door: 'root', kind, text, bytes: text.length }
  }

  async #put(life: Life): Promise<void> {
    const text = JSON.stringify({ vin: 'VIN', n: (this.#sent += 1) })
    const message = this.#message(life, 'wire', text)
    await life.inbox.put([message])
    life.waiting.set(text, message.id)
    this.#stored.set(text, false)
  }

  async #settle(life: Life, which: number): Promise<void> {
    const chosen = [...life.waiting][which % Math.max(1, life.waiting.size)]
    if (chosen === undefined) return
    const [text, id] = chosen
    life.waiting.delete(text)
    this.#stored.set(text, true)
    await life.inbox.settle(id)
  }

  #refuse(life: Life, which: number): void {
    const vin = `VIN${which % 3}`
    const atMs = this.#clock.now()
    const reason: GapReason = 'inbox_full'
    this.#lose(vin)
    life.open.push({ vin, reason, fromMs: atMs, toMs: atMs, missed: 1 })
  }

  #lose(vin?: string): void {
    const loss = { atMs: this.#fake.now(), setBacks: this.#offsets.length - 1 }
    this.#losses.push(vin === undefined ? loss : { ...loss, vin })
  }

  async emit(at: number): Promise<void> {
    const life = this.#lives[at]
    const gap = life?.open.shift()
    if (life === undefined || gap === undefined) return
    const event = { ...gap, from: new Date(gap.fromMs), to: new Date(gap.toMs ?? this.#clock.now()) }
    // Two gaps of one moment can be equal. The number tells their messages apart.
    const message = this.#message(life, 'gap', JSON.stringify({ ...event, n: (this.#sent += 1) }))
    await life.inbox.put([message])
    await life.inbox.settle(message.id)
    this.#emitted.push({ ...gap, toMs: event.to.getTime() })
  }

  async act({ does, which }: { readonly does: string; readonly which: number }): Promise<void> {
    const at = which % this.#lives.length
    const life = this.#lives[at]
    if (does === 'start') await this.start(at)
    else if (does === 'move') this.#move(at, (at + 1) % this.#lives.length)
    else if (does === 'stop') await this.stop(at)
    else if (does === 'crash') await this.#crash(at)
    else if (does === 'pass') await this.#pass(which * 200)
    else if (does === 'setBack') this.#offsets.push((this.#offsets.at(-1) ?? 0) - which * 60_000)
    else if (life === undefined) return
    else if (does === 'put') await this.#put(life)
    else if (does === 'settle') await this.#settle(life, which)
    else if (does === 'refuse') this.#refuse(life, which)
    else await this.emit(at)
  }

  /** While time passes, messages to receivers that do not run are lost. */
  async #pass(ms: number): Promise<void> {
    const { length: started } = this.#emitted
    // No message is lost in no time.
    const down = ms > 0 && this.#lives.some((life, at) => life === undefined && existsSync(this.#path(at)))
    if (down) this.#lose()
    await this.#fake.advance(ms)
    if (down) this.#lose()
    expect(this.#emitted).toHaveLength(started)
  }

  async finish(): Promise<void> {
    for (const at of this.#lives.keys()) await this.start(at)
    for (const [at, life] of this.#lives.entries()) while ((life?.open.length ?? 0) > 0) await this.emit(at)
    for (const { vin, atMs, setBacks } of this.#losses) {
      const covers = this.#emitted.filter((gap) => gap.vin === undefined || gap.vin === vin)
      // By the clock at the loss, or by a later one.
      const times = this.#offsets.slice(setBacks).map((offset) => atMs + offset)
      expect(covers.some(({ fromMs, toMs }) => times.some((time) => fromMs <= time && time <= toMs))).toBe(true)
    }
    // However far the clock was set back.
    const longest = this.#fake.now() - startMs
    for (const { fromMs, toMs } of this.#emitted) expect(toMs - fromMs).toBeLessThanOrEqual(longest)
    const waiting = this.#lives.flatMap((life) => [...(life?.waiting.keys() ?? [])])
    for (const [text, isSettled] of this.#stored) {
      const found = waiting.filter((each) => each === text).length
      if (isSettled) expect(found).toBeLessThanOrEqual(1)
      else expect(found).toBe(1)
    }
    for (const at of this.#lives.keys()) await this.stop(at)
    // Every gap was reported, and the stop is in the file.
    for (const at of this.#lives.keys()) {
      await this.start(at)
      expect(this.#lives[at]?.open).toEqual([])
      await this.stop(at)
    }
  }
}

test.each([1, 3])(
  'with %d receivers that stop, crash, start, move their files and set their clock back: no message is missing or twice, and each loss is in a gap',
  // Some hundred steps, each of which waits for the disk several times.
  { timeout: 900_000 },
  async (count) => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 50, size: 'max' }), async (steps) => {
        const fleet = new Fleet(count)
        await fleet.start(0)
        for (const each of steps) await fleet.act(each)
        await fleet.finish()
      }),
      { numRuns: Number(process.env['FLEETHOOK_RUNS'] ?? inForm({ short: 15, full: 150 })), endOnFailure: true },
    )
  },
)
