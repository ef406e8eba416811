import { DatabaseSync } from 'node:sqlite'
import { rules } from './rules.ts'

export const names: readonly string[] = rules.map(({ name }) => name)

/** Opens the settings of your customers. What can't be right is refused where it is written. */
export function openSettings(path: string): DatabaseSync {
  const db = new DatabaseSync(path)
  db.exec(`
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS settings (
      vin TEXT NOT NULL, rule TEXT NOT NULL, value REAL NOT NULL,
      PRIMARY KEY (vin, rule), CONSTRAINT "a VIN has 1 to 64 characters" CHECK (length(vin) BETWEEN 1 AND 64)
    ) STRICT;
  `)
  refuse(
    db,
    'rule',
    `NEW.rule NOT IN ('${names.join("', '")}')`,
    `There is no such rule. The rules are: ${names.join(', ')}`,
  )
  for (const { name, limit } of rules) {
    const [least, most, unit] = limit ?? [1, 1, 'which switches it on']
    const must = least === most ? `${least}, ${unit}` : `from ${least} to ${most} ${unit}`
    const isWrong = `NEW.rule = '${name}' AND NEW.value NOT BETWEEN ${least} AND ${most}`
    refuse(db, name, isWrong, `The value of ${name} must be ${must}`)
  }
  return db
}

function refuse(db: DatabaseSync, what: string, isWrong: string, text: string): void {
  for (const change of ['INSERT', 'UPDATE'])
    db.exec(`
      DROP TRIGGER IF EXISTS ${what}_${change};
      CREATE TRIGGER ${what}_${change} BEFORE ${change} ON settings WHEN ${isWrong} BEGIN SELECT RAISE(ABORT, '${text}'); END;
    `)
}

/** A row for each vehicle: the limits of its rules. */
export function rowsOf(db: DatabaseSync) {
  const rows = db.prepare('SELECT vin, json_group_object(rule, value) AS limits FROM settings GROUP BY vin').all()
  return rows.map(({ vin, limits }) => ({ vin: String(vin), ...JSON.parse(String(limits)) }))
}
