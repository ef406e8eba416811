// Compiled, never run: what a user's code sees of the package, without any types of a runtime.
import { createReceiver, FleethookError, type EventOf, type FleetEvent, type Handler, type Receiver } from 'fleethook'
import type { OtherField } from 'fleethook/normalize'
import { serve as serveOnBun } from 'fleethook/bun'
import { createClient, ServiceError, type Client } from 'fleethook/client'
import { serve as serveOnDeno } from 'fleethook/deno'
import { serve } from 'fleethook/node'
import { createNormalizer } from 'fleethook/normalize'
import { deliver, message } from 'fleethook/testing'
import { worker } from 'fleethook/workers'

const onData: Handler<'data'> = async (event, { signal }) => {
  const level: number | null | undefined = event.data.BatteryLevel
  const place: { readonly latitude: number; readonly longitude: number } | null | undefined = event.data.Location
  await Promise.resolve([level, place, signal.aborted])
}

const receiver: Receiver = createReceiver({ secret: 'a-long-random-value' })
  .on('data', onData)
  .on(['alerts', 'errors'], (event) => {
    const topic: 'alerts' | 'errors' = event.topic
    return topic
  })
  .on('*', (event: FleetEvent) => event.topic)

// @ts-expect-error a topic that does not exist
receiver.on('weather', () => {})
// @ts-expect-error a field is a number, not a text
export const wrong = (event: EventOf<'data'>): string => event.data.BatteryLevel

// @ts-expect-error a misspelled field
receiver.on('data', (event) => event.data.BateryLevel)
// @ts-expect-error a misspelled field in brackets
receiver.on('data', (event) => event.data['BateryLevel'])
// @ts-expect-error a text can be any name
receiver.on('data', (event, { log }) => event.data[log.toString()])
receiver.on('data', (event) => event.data['CabinHumidity' as OtherField])
receiver.on('data', { fields: ['BatteryLevel', 'Gear'] }, onData)
// @ts-expect-error a misspelled field of a filter
receiver.on('data', { fields: ['BateryLevel'] }, onData)
// @ts-expect-error a misspelled field of the filter of a batch
receiver.batch('data', { size: 10, withinMs: 10, fields: ['BateryLevel'] }, (events) => events.length)
// @ts-expect-error a misspelled field of a message for tests
message.data({ BateryLevel: 80 })

const fields = { CabinHumidity: 'number', Mood: { enum: ['Calm', 'Angry'] } } as const
createReceiver({ secret: 'a-long-random-value', fields })
  .on('data', { fields: ['CabinHumidity', 'BatteryLevel'] }, (event) => {
    const humidity: number | null | undefined = event.data.CabinHumidity
    const mood: 'Calm' | 'Angry' | null | undefined = event.data.Mood
    const level: number | null | undefined = event.data.BatteryLevel
    return [humidity, mood, level]
  })
  // @ts-expect-error a misspelled field of the user's own
  .on('data', (event) => event.data.CabinHumidty)
  // @ts-expect-error the same in a filter
  .on('data', { fields: ['CabinHumidty'] }, () => {})
message.data<typeof fields>({ CabinHumidity: 40, BatteryLevel: 80 })
// @ts-expect-error a misspelled field beside the user's own
message.data<typeof fields>({ CabinHumidty: 40 })

const client: Client = createClient({ baseUrl: 'https://service.example', apiKey: 'the-key-of-the-business' })
receiver.on('gap', async (gap, { signal }) => {
  for await (const event of client.refill(gap, { signal })) void event.vehicleData
})
export const level = async (): Promise<number | null | undefined> => {
  for await (const event of client.stream('0FLEETV14T0000004'))
    if (event.topic === 'data') return event.data.BatteryLevel
  throw new ServiceError('unreachable', 'No stream.')
}
void client.config('0FLEETV14T0000004').patch({ fields: { BatteryLevel: { interval_seconds: 60, minimum_delta: 1 } } })
// @ts-expect-error a setting without an interval
void client.config('0FLEETV14T0000004').patch({ fields: { BatteryLevel: { minimum_delta: 1 } } })

void worker(receiver)
void [serve, serveOnBun, serveOnDeno].map((start) => () => start(receiver, { port: 0 }))
void [createNormalizer, deliver, message, FleethookError]
