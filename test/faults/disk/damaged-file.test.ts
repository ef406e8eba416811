import { readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { judge } from '../process/journal.ts'
import { createSite, idle } from '../process/start.ts'
import { createTraffic } from '../process/traffic.ts'

/*
 * A receiver is killed while its messages wait, its file is damaged, and the next receiver finds that. What it needs of the
 * machine is nothing.
 */
const vins = Array.from({ length: 8 }, (_, n) => `V${n}`)
const pageBytes = 8192
const rows: Row[] = []

interface Damage {
  readonly name: string
  /** Whether the file has to be put aside. Else it is as good as new, as far as it goes. */
  readonly isPutAside: boolean
  /** The reason of the gap that tells of it. */
  readonly tells: 'inbox_damaged' | 'restarted'
  /** The least share of what was acknowledged that has to be handled nonetheless. */
  readonly saves: number
  make(path: string): void
}

function overwrite(path: string, from: number, bytes: Uint8Array): void {
  const file = readFileSync(path)
  file.set(bytes.subarray(0, Math.max(0, file.length - from)), from)
  writeFileSync(path, file)
}

const nonsense = (bytes: number): Buffer => Buffer.alloc(bytes, 0xa5)

/** Pages all over the file, but for the first ones, where SQLite begins to read. */
function overwriteOneIn(path: string, every: number): void {
  const pages = Math.floor(readFileSync(path).length / pageBytes)
  for (let page = 8 + every; page < pages; page += every) overwrite(path, page * pageBytes, nonsense(pageBytes))
}

/** Takes what is in the journal into the file, so that damage to the file is damage to all of it. */
function settle(path: string): void {
  const db = new DatabaseSync(path)
  db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  db.close()
}

const damages: readonly Damage[] = [
  {
    name: 'pages all over it',
    isPutAside: true,
    tells: 'inbox_damaged',
    saves: 0.5,
    make: (path) => overwriteOneIn(path, 10),
  },
  {
    name: 'a header of zeros',
    isPutAside: true,
    // It is made anew, and nothing is missing.
    tells: 'restarted',
    saves: 1,
    make: (path) => overwrite(path, 0, Buffer.alloc(100)),
  },
  {
    name: 'nonsense in its place',
    isPutAside: true,
    tells: 'inbox_damaged',
    saves: 0,
    make: (path) => writeFileSync(path, nonsense(50_000)),
  },
  {
    name: 'cut off in its middle',
    isPutAside: true,
    tells: 'inbox_damaged',
    saves: 0.2,
    make: (path) => truncateSync(path, Math.floor(readFileSync(path).length / 2)),
  },
  {
    name: 'a journal cut off after its first pages',
    isPutAside: false,
    tells: 'restarted',
    saves: 0,
    // Each a page and its header. It reads like a journal that ends there: nothing is damaged, and all behind it is gone.
    make: (path) => truncateSync(`${path}-wal`, 32 + 3 * (pageBytes + 24)),
  },
]

describe('a damaged file is put aside, told of, and never a reason not to start:', () => {
  test.each(inForm({ short: damages.slice(0, 2), full: damages }))(
    '$name',
    async ({ name, isPutAside, tells, saves, make }) => {
      const site = createSite('node24', { handlerMs: 0 })
      const traffic = createTraffic({ vins, extraBytes: 2_000 })
      const enough = inForm({ short: 200, full: 600, long: 5_000 })
      {
        await using target = await site.start({ holds: true })
        await traffic.pour(target.url, () => traffic.acknowledged.size >= enough)
      }
      if (isPutAside) settle(site.path)
      make(site.path)
      await using next = await site.start()
      await idle(next, 60_000)
      // It takes new messages as ever, and the vehicles go on with their order.
      const before = traffic.acknowledged.size
      await traffic.pour(next.url, () => traffic.acknowledged.size >= before + 100)
      await idle(next, 60_000)
      const gaps = next.output.filter((line) => line.startsWith('gap '))
      await next.stop()

      const said = next.output.filter((line) => line.includes('was damaged'))
      const aside = readdirSync(dirname(site.path)).filter((each) => each.startsWith(`${basename(site.path)}.damaged-`))
      expect(said).toHaveLength(isPutAside ? 1 : 0)
      expect(aside.length > 0).toBe(isPutAside)
      expect(gaps.map((line) => line.split(' ')[1])).toContain(tells)
      const { lost, outOfOrder } = judge(traffic.acknowledged, site.journal())
      const acknowledged = traffic.acknowledged.size
      rows.push({
        damage: name,
        acknowledged,
        handled: acknowledged - lost.length,
        'put aside': isPutAside ? 'yes' : 'no',
        'told of by a gap of reason': [...new Set(gaps.map((line) => line.split(' ')[1]))].join(', '),
      })
      expect(outOfOrder).toEqual([])
      // What came after it is never among what is lost.
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
      'A receiver is ended while what it has acknowledged waits, its file is damaged, and the next receiver handles what it finds, and what comes then. A damaged file is put aside, what can be read of it goes on, and a gap tells of it.',
    tables: [{ title: 'Damages', rows }],
  })
})
