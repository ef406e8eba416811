import { DatabaseSync } from 'node:sqlite'
import { fact } from 'fleethook/when'

export const customer = fact('customer', 'string')

/** The areas that a customer can have. A new area is a row, a new name is a word here. */
export const areas = [fact('home', 'area'), fact('work', 'area')] as const
const names = areas.map(({ name }) => name)

/** Opens the tables that your page for customers writes. They refuse what is wrong. */
export function openAreas(path: string): DatabaseSync {
  const db = new DatabaseSync(path)
  db.exec(`
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS vehicles (vin TEXT PRIMARY KEY, customer TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS areas (
      customer TEXT NOT NULL, name TEXT NOT NULL, latitude REAL NOT NULL, longitude REAL NOT NULL, radius_m REAL NOT NULL,
      PRIMARY KEY (customer, name),
      CONSTRAINT "latitude must be from -90 to 90" CHECK (latitude BETWEEN -90 AND 90),
      CONSTRAINT "longitude must be from -180 to 180" CHECK (longitude BETWEEN -180 AND 180),
      CONSTRAINT "radius_m must be from 10 to 1000000 meters" CHECK (radius_m BETWEEN 10 AND 1000000)
    ) STRICT;
  `)
  for (const change of ['INSERT', 'UPDATE'])
    db.exec(`
      DROP TRIGGER IF EXISTS known_names_${change};
      CREATE TRIGGER known_names_${change} BEFORE ${change} ON areas WHEN NEW.name NOT IN ('${names.join("', '")}')
      BEGIN SELECT RAISE(ABORT, 'There is no such area. The names are: ${names.join(', ')}'); END;
    `)
  return db
}

/** A row for each vehicle: its customer, and the areas of its customer. */
export function rowsOf(db: DatabaseSync) {
  const rows = db.prepare(`
    SELECT vin, customer, json_group_object(name, json_object('latitude', latitude, 'longitude', longitude, 'radiusMeters', radius_m))
      FILTER (WHERE name IS NOT NULL) AS areas
    FROM vehicles LEFT JOIN areas USING (customer) GROUP BY vin
  `)
  return rows
    .all()
    .map((row) => ({ vin: String(row['vin']), customer: String(row['customer']), ...JSON.parse(String(row['areas'])) }))
}
