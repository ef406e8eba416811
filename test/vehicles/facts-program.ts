// A process with a receiver of `facts-receiver.ts` that takes messages and questions. `SETTINGS` says where it keeps them, and to which port it notes what
// its handlers were told.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { InboxFactory } from '../../src/extend.ts'
import { factsReceiver, type FactsSettings, type Noted } from './facts-receiver.ts'

export interface FactsProgramSettings {
  readonly facts: FactsSettings
  readonly logPort: number
  readonly inbox:
    | { readonly sqlite: string }
    | { readonly postgres: number; readonly schema: string; readonly role: 'both' | 'receive' }
}

const { facts, logPort, inbox }: FactsProgramSettings = JSON.parse(process.env['SETTINGS'] ?? '{}')

async function openInbox(): Promise<InboxFactory> {
  if ('sqlite' in inbox) return (await import('../../adapters/inbox/sqlite.ts')).sqliteInbox({ path: inbox.sqlite })
  const { postgresInbox } = await import('../../adapters/inbox/postgres.ts')
  const { poolOn } = await import('../postgres/transactions.ts')
  const { postgres, schema, role } = inbox
  // On a busy machine, a process can stand still for more than a second. After its lease, what it has in hand is told again.
  return postgresInbox({ db: poolOn(postgres, 6), schema, role, leaseMs: 6_000 })
}

const note = (noted: Noted): Promise<unknown> =>
  fetch(`http://127.0.0.1:${logPort}`, { method: 'POST', body: JSON.stringify(noted) })
const receiver = factsReceiver(facts, { secret: false, inbox: await openInbox() }, note)
await receiver.open()

const answerTo = async (path: string | undefined, body: never): Promise<readonly [status: number, answer: unknown]> => {
  if (path !== '/ask') return [(await receiver.accept({ authorization: undefined, body })).status, null]
  return receiver.ask(body).then(
    (answer) => [200, answer ?? null],
    (error: unknown) => [500, String(error)],
  )
}
const server = createServer((request, response) => {
  let text = ''
  request.setEncoding('utf8')
  request.on('data', (chunk: string) => (text += chunk))
  request.on('end', () => {
    void answerTo(request.url, JSON.parse(text) as never).then(([status, answer]) =>
      response.writeHead(status).end(JSON.stringify(answer)),
    )
  })
})
server.listen(0, '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`)
})
