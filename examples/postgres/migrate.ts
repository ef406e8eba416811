import pg from 'pg'
import { table } from './handlers.ts'

const client = new pg.Client({ connectionString: process.env.DATABASE_URL })
await client.connect()
await client.query(table)
await client.end()
console.log('The table readings is ready.')
