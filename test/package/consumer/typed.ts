// Compiled, never run: what a user's code sees of the package, without any types of a runtime.
import { createReceiver, FleethookError, type EventOf, type FleetEvent, type Handler, type Receiver } from 'fleethook'
import { serve as serveOnBun } from 'fleethook/bun'
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

void worker(receiver)
void [serve, serveOnBun, serveOnDeno].map((start) => () => start(receiver, { port: 0 }))
void [createNormalizer, deliver, message, FleethookError]
