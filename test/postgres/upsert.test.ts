import { PGlite } from '@electric-sql/pglite'
import { upsert } from 'fleethook/when'
import { expect, test } from 'vitest'

const id = 'V:trip:2026-01-01T08:00:00.000Z'
const started = new Date('2026-01-01T08:00:00Z')

// `test/when/upsert.test.ts` has the cases of SQLite.
test('with Postgres, times and booleans stay what they are, and the rest is as with SQLite', async () => {
  await using db = await PGlite.create()
  await db.exec(
    'CREATE SCHEMA ours; CREATE TABLE ours.trips (id text PRIMARY KEY, revision int, revoked bool, started timestamptz, route jsonb, note text)',
  )
  const save = async (revision: number, more: object): Promise<void> => {
    const { sql, values } = upsert('postgres', 'ours.trips', { id, revision, ...more })
    await db.query(sql, values)
  }
  await save(2, { revoked: false, started, route: [] })
  await db.exec(`UPDATE ours.trips SET note = 'to the dentist'`)
  await save(1, { revoked: true })
  await save(3, { started, route: [{ latitude: 1 }] })
  expect((await db.query('SELECT * FROM ours.trips')).rows).toEqual([
    { id, revision: 3, revoked: false, started, route: [{ latitude: 1 }], note: 'to the dentist' },
  ])
})
