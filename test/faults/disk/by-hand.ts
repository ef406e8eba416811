// A handwritten route: it inserts each message into SQLite before it answers. `SYNCHRONOUS` is the setting of SQLite.
import { createServer } from 'node:http'
import { DatabaseSync } from 'node:sqlite'

const db = new DatabaseSync(process.env['DATABASE'] ?? '')
db.exec('PRAGMA journal_mode = WAL')
db.exec(`PRAGMA synchronous = ${process.env['SYNCHRONOUS']}`)
db.exec('CREATE TABLE messages (body TEXT)')
const insert = db.prepare('INSERT INTO messages VALUES (?)')

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => {
    insert.run(Buffer.concat(chunks).toString())
    response.end()
  })
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (address !== null && typeof address === 'object') console.log(`listening on http://127.0.0.1:${address.port}`)
})
