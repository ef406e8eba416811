import { styleText } from 'node:util'
import { createReceiver, type FieldValue, type FleetEvent } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { serve } from 'fleethook/node'

const receiver = createReceiver({
  secret: process.env.WEBHOOK_SECRET,
  // A 2xx is sent when the message is on the disk: a crash or a power cut loses nothing that was acknowledged.
  inbox: sqliteInbox({ path: process.env.FLEETHOOK_INBOX ?? 'data/inbox.db' }),
})
  .on('*', (event) => console.log(line(event)))
  .on('alerts', (event) => {
    // What your business does about it goes here. A handler may be asynchronous; when it throws, it is run again.
    for (const alert of event.alerts) {
      if (alert.endedAt === undefined) console.log(styleText('yellow', `  → ${event.vin} reports ${alert.name}`))
    }
  })

const server = await serve(receiver, { port: Number(process.env.PORT ?? 3000) })

// Resolves after SIGTERM or Ctrl+C, when everything that was acknowledged is handled.
const { left, lost } = await server.closed
const { received, handled } = receiver.stats()
console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)

/** An event at a glance: the vehicle's time, the vehicle, the format it came in, the topic, what it says. */
function line(event: FleetEvent): string {
  const format = event.format?.replace('vehicle_maker', 'maker').replace('event_collector', 'collector') ?? ''
  return [
    styleText('dim', event.createdAt.slice(11, 19)),
    event.vin ?? 'no vehicle       ',
    styleText('dim', format.padEnd(9)),
    styleText(event.topic === 'data' ? 'green' : 'cyan', event.topic.padEnd(12)),
    says(event),
  ].join('  ')
}

function says(event: FleetEvent): string {
  switch (event.topic) {
    case 'data':
      return Object.entries(event.data)
        .map(([field, value]) => `${field} ${shown(value ?? null)}`)
        .join('  ')
    case 'state':
      return event.state
    case 'vehicle_data':
      return `a document of ${Object.keys(event.vehicleData).length} sections`
    case 'alerts':
      return event.alerts.map((alert) => `${alert.name} ${alert.endedAt === undefined ? 'began' : 'ended'}`).join(', ')
    case 'errors':
      return event.errors.map((error) => error.name).join(', ')
    case 'connectivity':
      return `${event.networkInterface} ${event.status}`
    case 'unknown':
      return event.reason
    case 'gap':
      // After a crash nobody can know how many.
      return `${event.missed || 'some'} messages may be missing since ${event.from.toISOString()} (${event.reason})`
  }
}

function shown(value: FieldValue): string {
  if (typeof value === 'number') return String(Math.round(value * 1000) / 1000)
  if (value === null) return '–'
  if (typeof value !== 'object') return String(value)
  if ('latitude' in value)
    return Object.values(value)
      .map((degrees) => Number(degrees).toFixed(4))
      .join(',')
  return JSON.stringify(value)
}
