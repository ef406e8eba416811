import { DatabaseSync } from 'node:sqlite'
import { upsert } from 'fleethook/when'
import { beforeEach, describe, expect, test } from 'vitest'

const id = 'V:trip:2026-01-01T08:00:00.000Z'
const started = new Date('2026-01-01T08:00:00Z')

describe('with SQLite', () => {
  let db: DatabaseSync
  beforeEach(() => {
    db = new DatabaseSync(':memory:')
    db.exec('CREATE TABLE trips (id TEXT PRIMARY KEY, revision, revoked, started, miles, route, note)')
  })
  const save = (row: Record<string, unknown> & { readonly revision: number }): void => {
    const { sql, values } = upsert('sqlite', 'trips', { id, ...row })
    db.prepare(sql).run(...values)
  }
  const rows = (): unknown =>
    db
      .prepare('SELECT * FROM trips')
      .all()
      .map((row) => ({ ...row }))

  test('a row is written, and changed by the next revision', () => {
    save({ revision: 1, revoked: false, started, miles: 12.5, route: [{ latitude: 1 }] })
    expect(rows()).toEqual([
      {
        id,
        revision: 1,
        revoked: 0,
        started: '2026-01-01T08:00:00.000Z',
        miles: 12.5,
        route: '[{"latitude":1}]',
        note: null,
      },
    ])
    save({ revision: 2, revoked: true, started, miles: null, route: undefined })
    expect(rows()).toEqual([
      { id, revision: 2, revoked: 1, started: '2026-01-01T08:00:00.000Z', miles: null, route: null, note: null },
    ])
  })

  test('an older revision, and the same one again, change nothing', () => {
    save({ revision: 3, miles: 12 })
    save({ revision: 2, miles: 11 })
    save({ revision: 3, miles: 10 })
    expect(rows()).toMatchObject([{ revision: 3, miles: 12 }])
  })

  test('a column that the row does not name keeps what people wrote into it', () => {
    save({ revision: 1, miles: 12 })
    db.exec(`UPDATE trips SET note = 'to the dentist'`)
    save({ revision: 2, miles: 13 })
    expect(rows()).toMatchObject([{ miles: 13, note: 'to the dentist' }])
  })

  test.each([
    ['trips; DROP TABLE trips', {}],
    ['trips', { 'miles = 0, note': 1 }],
    ['trips', { id: '' }],
    ['trips', { revision: Number.NaN }],
  ])('a name or a row that would be another statement is refused: %s %j', (table, more) => {
    expect(() => upsert('sqlite', table, { id, revision: 1, ...more })).toThrow('upsert cannot write')
  })
})
