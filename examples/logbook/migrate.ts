import { readFileSync } from 'node:fs'
import pg from 'pg'

const client = new pg.Client({ connectionString: process.env.DATABASE_URL })
await client.connect()
for (const file of ['schema.sql', 'questions.sql'])
  await client.query(readFileSync(new URL(file, import.meta.url), 'utf8'))
await client.end()
console.log('The tables are ready.')
