import { readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { judge } from '../accounting.ts'
import { createSite, idle } from '../process/start.ts'
import { createTraffic } from '../process/traffic.ts'

/*
 * A receiver is killed while messages wait. Its file is damaged, and the next receiver opens it. Runs on any machine.
 */
const vins = Array.from({ length: 8 }, (_, n) => `V${n}`)
const pageBytes = 8192
const rows: Row[] = []

interface Damage {
  readonly name: string
  /** Whether the file must be replaced. Otherwise SQLite reads it like an undamaged one. */
  readonly isReplaced: boolean
  /** The reason of the gap event. */
  readonly gap: 'inbox_damaged' | 'restarted'
  /** The least share of the acknowledged messages that must be handled. */
  readonly saves: number
  make(path: string): void
}

function overwrite(path: string, from: number, bytes: Uint8Array): void {
  const file = readFileSync(path)
  file.set(bytes.subarray(0, Math.max(0, file.length - from)), from)
  writeFileSync(path, file)
}

const nonsense = (bytes: number): Buffer => Buffer.alloc(bytes, 0xa5)

/** Pages all over the file, except the first ones, where SQLite starts reading. */
function overwriteOneIn(path: string, every: number): void {
  const pages = Math.floor(readFileSync(path).length / pageBytes)
  for (let page = 8 + every; page < pages; page += every) overwrite(path, page * pageBytes, nonsense(pageBytes))
}

/** Moves the journal into the file, so that damage to the file hits every message. */
function checkpoint(path: string): void {
  const db = new DatabaseSync(path)
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  db.close()
}

const damages: readonly Damage[] = [
  {
    name: 'pages all over it',
    isReplaced: true,
    gap: 'inbox_damaged',
    saves: 0.5,
    make: (path) => overwriteOneIn(path, 10),
  },
  {
    name: 'a header of zeros',
    isReplaced: true,
    // The first page is replaced, so nothing is missing.
    gap: 'restarted',
    saves: 1,
    make: (path) => overwrite(path, 0, Buffer.alloc(100)),
  },
  {
    name: 'nonsense in its place',
    isReplaced: true,
    gap: 'inbox_damaged',
    saves: 0,
    make: (path) => writeFileSync(path, nonsense(50_000)),
  },
  {
    name: 'cut off in its middle',
    isReplaced: true,
    gap: 'inbox_damaged',
    saves: 0.2,
    make: (path) => truncateSync(path, Math.floor(readFileSync(path).length / 2)),
  },
  {
    name: 'a journal cut off after its first pages',
    isReplaced: false,
    gap: 'restarted',
    saves: 0,
    // Each page has a header. SQLite reads this as a shorter journal: nothing is damaged, and every later page is gone.
    make: (path) => truncateSync(`${path}-wal`, 32 + 3 * (pageBytes + 24)),
  },
]

describe('a receiver starts with a damaged file, replaces it and reports it:', () => {
  test.each(inForm({ real: damages.slice(0, 2), full: damages }))(
    '$name',
    async ({ name, isReplaced, gap, saves, make }) => {
      const site = createSite('node24', { handlerMs: 0 })
      const traffic = createTraffic({ vins, extraBytes: 2_000 })
      const enough = inForm({ real: 200, full: 600, long: 5_000 })
      {
        await using target = await site.start({ holds: true })
        await traffic.pour(target.url, () => traffic.acknowledged.size >= enough)
      }
      if (isReplaced) checkpoint(site.path)
      make(site.path)
      await using next = await site.start()
      await idle(next, 60_000)
      // It takes new messages, and the order of each vehicle continues.
      const before = traffic.acknowledged.size
      await traffic.pour(next.url, () => traffic.acknowledged.size >= before + 100)
      await idle(next, 60_000)
      const gaps = next.output.filter((line) => line.startsWith('gap '))
      await next.stop()

      const said = next.output.filter((line) => line.includes('was damaged'))
      const aside = readdirSync(dirname(site.path)).filter((each) => each.startsWith(`${basename(site.path)}.damaged-`))
      expect(said).toHaveLength(isReplaced ? 1 : 0)
      expect(aside.length > 0).toBe(isReplaced)
      expect(gaps.map((line) => line.split(' ')[1])).toContain(gap)
      const { lost, outOfOrder } = judge(traffic.acknowledged, site.journal().runs)
      const acknowledged = traffic.acknowledged.size
      rows.push({
        damage: name,
        acknowledged,
        handled: acknowledged - lost.length,
        replaced: isReplaced ? 'yes' : 'no',
        'reason of the gap': [...new Set(gaps.map((line) => line.split(' ')[1]))].join(', '),
      })
      expect(outOfOrder).toEqual([])
      // No message that came after the damage is lost.
      const late = new Set([...traffic.acknowledged].slice(before))
      expect(lost.filter((each) => late.has(each))).toEqual([])
      expect(1 - lost.length / before).toBeGreaterThanOrEqual(saves)
    },
    inForm({ full: 120_000, long: 600_000 }),
  )
})

afterAll(async () => {
  if (rows.length === 0) return
  await writeFigures({
    piece: 'damaged-file',
    title: 'Damaged files',
    file: 'test/faults/disk/damaged-file.test.ts',
    about:
      'A receiver is killed while acknowledged messages wait, and its file is damaged. The next receiver replaces the file with a new one, handles every message that can be read, takes new messages, and emits a gap event.',
    tables: [{ title: 'Damages', rows }],
  })
})
