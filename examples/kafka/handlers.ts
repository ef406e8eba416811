import type { Receiver } from 'fleethook'

/**
 * Your business code. A handler may be async. When it throws, it runs again later, and its vehicle waits. It runs for each message, and
 * vehicles repeat theirs: to tell somebody only what is new, keep what you told in your database.
 */
export function addHandlers(receiver: Receiver): Receiver {
  return receiver
    .on('data', (event) => {
      const { BatteryLevel: percent } = event.data
      if (typeof percent === 'number' && percent < 20) console.log(`→ ${event.vin} needs a charge: ${percent} %`)
    })
    .on('alerts', (event) => {
      const active = event.alerts.filter((alert) => alert.endedAt === undefined)
      for (const { name } of active) console.log(`→ ${event.vin} reports ${name}`)
    })
    .on('gap', (event) => console.warn('messages may be missing', event.vin, event.reason, event.from, event.to))
}
