import { readFileSync } from 'node:fs'
import pg from 'pg'

const { DATABASE_URL, READER_SECRET } = process.env
const client = new pg.Client({ connectionString: DATABASE_URL })
const run = (file: string) => client.query(readFileSync(new URL(file, import.meta.url), 'utf8'))

await client.connect()
await run('schema.sql')
await run('questions.sql')
console.log('The tables are ready.')
if (READER_SECRET) {
  await run('grafana/reader.sql')
  await client.query(`ALTER ROLE logbook_reader PASSWORD ${client.escapeLiteral(READER_SECRET)}`)
  console.log('Grafana reads as logbook_reader.')
}
await client.end()
