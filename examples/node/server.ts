import { createReceiver, type FleetEvent } from 'fleethook'
import { serve } from 'fleethook/node'

const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET })
  .on('*', (event) => console.log(line(event)))
  .on('alerts', (event) => {
    // What your business does about it goes here. A handler may be asynchronous; when it throws, it is run again.
    for (const alert of event.alerts)
      if (alert.endedAt === undefined) console.log(`  → ${event.vin} reports ${alert.name}`)
  })

const server = await serve(receiver, { port: Number(process.env.PORT ?? 3000) })

// Resolves after SIGTERM or Ctrl+C, when everything that was acknowledged is handled.
const { left, lost } = await server.closed
const { received, handled } = receiver.stats()
console.log(`received ${received}, handled ${handled}, left ${left}, lost ${lost}`)

/** An event at a glance. */
function line(event: FleetEvent): string {
  const at = event.createdAt.slice(0, 19).replace('T', ' ')
  return [at, event.vin ?? 'no vin', event.topic.padEnd(12), summary(event)].join('  ')
}

function summary(event: FleetEvent): string {
  switch (event.topic) {
    case 'data':
      return Object.entries(event.data)
        .map(([field, value]) => `${field} ${JSON.stringify(value)}`)
        .join('  ')
    case 'state':
      return event.state
    case 'vehicle_data':
      return `${Object.keys(event.vehicleData).length} sections`
    case 'alerts':
      return event.alerts.map((alert) => alert.name).join(', ')
    case 'errors':
      return event.errors.map((error) => error.name).join(', ')
    case 'connectivity':
      return `${event.networkInterface} ${event.status}`
    case 'unknown':
      return event.reason
    case 'gap':
      return `${event.missed} messages missing since ${event.from.toISOString()}`
  }
}
