import type { InboxMessage } from '../../src/extend.ts'
import { DeliveryIds } from '../../src/inbox/delivery-id.ts'
import { between, randomFrom } from '../../src/service/fleet/random.ts'
import { corpus } from '../corpus.ts'

/** Bodies of 0.4 to 2 kB, as from vehicles that stream many fields. */
export function largeBodies(count: number, vins: number): string[] {
  const random = randomFrom(20_261_121)
  const small = corpus({ messages: 5000, vins, format: 'service' })
  let next = 0
  return Array.from({ length: count }, () => {
    const wanted = between(random, 400, 2000)
    const first: { vin: string; createdAt: string; data: Record<string, unknown> } = JSON.parse(
      small[next % small.length] ?? '',
    )
    let length = 0
    for (let tries = 0; length < wanted && tries < 200; tries++) {
      next += 1
      Object.assign(first.data, JSON.parse(small[next % small.length] ?? '').data)
      length = JSON.stringify(first).length
    }
    return JSON.stringify(first)
  })
}

/** Makes messages from bodies as a receiver does, each with its id. */
export function messageMaker(bodies: readonly string[]): () => InboxMessage {
  const ids = new DeliveryIds()
  let made = 0
  return () => {
    const text = bodies[made % bodies.length] ?? ''
    const lane = `0FLEETV${String(made % 1000).padStart(10, '0')}`
    made += 1
    const receivedAt = Date.now()
    return { id: ids.next(receivedAt), lane, receivedAt, door: 'root', kind: 'wire', text, bytes: text.length }
  }
}
