import type { FieldValues, FleetEvent } from 'fleethook'
import { normalize } from 'fleethook/normalize'
import { type GivenAlert, message } from 'fleethook/testing'
import { encode } from 'fleethook/normalize'

const startMs = Date.parse('2026-11-21T10:00:00Z')
const vin = '0FLEETV14T0000004'

/** A message as a test writes it: values of fields, a state, alerts, or a gap before the next message. */
export type Told =
  | { readonly data: FieldValues; readonly atMinute?: number }
  | { readonly state: string; readonly atMinute?: number }
  | { readonly alerts: readonly GivenAlert[]; readonly atMinute?: number }
  | 'gap'

/** The events of messages that arrive a minute apart, and were sent when they arrive unless `atMinute` says otherwise. */
export function eventsOf(told: readonly Told[]): readonly FleetEvent[] {
  return told.map((one, index) => {
    const receivedAt = new Date(startMs + index * 60_000)
    if (one === 'gap') return gapAt(receivedAt)
    const createdAt = new Date(startMs + (one.atMinute ?? index) * 60_000).toISOString()
    const made =
      'data' in one
        ? message.data(one.data, { vin, createdAt })
        : 'state' in one
          ? message.state(one.state, { vin, createdAt })
          : message.alerts(one.alerts, { vin, createdAt })
    const [event] = normalize([encode(made, 'service')], { receivedAt })
    if (event === undefined) throw new Error('The message was not read.')
    return event
  })
}

function gapAt(at: Date): FleetEvent {
  const about = { topic: 'gap', from: at, to: at, reason: 'restarted', missed: 0, format: null, raw: null } as const
  return { ...about, vin, createdAt: at.toISOString(), at, receivedAt: at, id: `gap-${at.getTime()}`, meta: {} }
}
