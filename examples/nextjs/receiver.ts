import { createReceiver, summarize, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { drives, episode, span, starts } from 'fleethook/when'
import { write } from './diary'

const isDriving = drives() // by its gear, or by its speed where it has none

export const drive = episode('drive', {
  during: isDriving,
  joins: { minutes: 3 }, // a stop at a gate
  silence: { hours: 1 }, // its end was lost
  measures: { odometer: span('Odometer'), percent: span('BatteryLevel') },
})

export type Drive = ReturnType<typeof drive.in>[number]

const create = () =>
  createReceiver({
    secret: () => process.env.WEBHOOK_SECRET, // asked when a message comes: at build time there is none
    basePath: '/telemetry',
    // A 2xx is sent when the message is on the disk: a crash or a power cut loses no acknowledged message.
    inbox: sqliteInbox({ path: process.env.FLEETHOOK_INBOX ?? 'data/inbox.db' }),
    parts: [vehicles({ fields: ['Gear', 'VehicleSpeed', 'Odometer', 'BatteryLevel'] })],
  })
    .on(['data', 'alerts', 'errors'], (event) => console.log(summarize(event)))
    // Your business code goes here. The sender does not wait for it, however slow it is, and it runs again when it fails.
    .when(starts(isDriving), ({ vin, change }) => console.log(`${vin} drives since ${change.at.toISOString()}`))
    .when(drive, ({ change, vehicle }) => write(change, drive.doubts(change, vehicle)))

declare global {
  var kept: { receiver?: ReturnType<typeof create> } | undefined
}

// Next.js loads this module once for each route and once for instrumentation.ts, and an inbox has one receiver.
globalThis.kept ??= {}
export const receiver = (globalThis.kept.receiver ??= create())
