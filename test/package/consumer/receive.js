// Runs on every runtime: the installed package serves itself three messages, one in each format, and says what came of them.
import { argv } from 'node:process'
import { createReceiver } from 'fleethook'

const secret = 'a-secret-of-the-consumer'
const { serve } = await import(`fleethook/${argv[2]}`)
const handled = []
const receiver = createReceiver({ secret }).on('data', (event) => {
  handled.push(`${event.format} ${event.vin} ${event.data.BatteryLevel}`)
})
const server = await serve(receiver, { port: 0, hostname: '127.0.0.1' })

const vin = '5YJ3E1EA7KF000316'
const createdAt = '2026-01-02T03:04:05Z'
const makers = { vin, createdAt, data: [{ key: 'BatteryLevel', value: { stringValue: '81.5' } }] }
const messages = [
  { vin, createdAt, data: { BatteryLevel: 81.5 } },
  makers,
  { time: 1767323045, host: 'host', source: vin, sourcetype: 'maker:telemetry:data', event: { BatteryLevel: '81.5' } },
]
const statuses = []
for (const message of messages) {
  const answer = await fetch(server.url, {
    method: 'POST',
    headers: { authorization: secret },
    body: JSON.stringify(message),
  })
  statuses.push(answer.status)
}
statuses.push((await fetch(server.url, { method: 'POST', headers: { authorization: 'wrong' }, body: '{}' })).status)
await server.close()
console.log(JSON.stringify({ statuses, handled }))
