import type { Meta, WireTopic } from '../events/event.ts'
import { named, nothing } from './named.ts'
import type { JsonObject } from './record.ts'

/** Whether a key may go to `meta` with this value: those that `Meta` gives a type must have it. */
function fits(key: string, value: unknown): boolean {
  switch (key) {
    case 'host':
    case 'sourcetype':
    case 'connectionId':
      return typeof value === 'string'
    case 'isResend':
    case 'isCache':
      return typeof value === 'boolean'
    case 'changed':
      return Array.isArray(value) && value.every((name) => typeof name === 'string')
    // These are fleethook's to say.
    case 'createdAtMissing':
    case 'conflated':
      return false
  }
  return value !== undefined
}

function isPayload(key: string, topic: WireTopic | undefined): boolean {
  if (key === 'vin' || key === 'createdAt') return true
  return topic === 'connectivity' ? key === 'networkInterface' || key === 'status' : key === topic
}

type OpenMeta = { -readonly [Key in keyof Meta]: Meta[Key] }

function withKey(meta: Meta, key: string, value: unknown): Meta {
  const open: OpenMeta = meta === nothing ? named<never>() : meta
  open[key] = value
  return open
}

/** `meta` with what a message carries beside its payload. */
export function messageMeta(meta: Meta, message: JsonObject, topic: WireTopic | undefined): Meta {
  let added = meta
  for (const key in message) {
    if (!isPayload(key, topic) && fits(key, message[key])) added = withKey(added, key, message[key])
  }
  return added
}

/** What the envelope of a collector event carries beside its event. */
export function envelopeMeta(envelope: JsonObject): Meta {
  const { host, sourcetype } = envelope
  let added: Meta = nothing
  // By name first: a store to a name that is known when the code is written is several times as fast.
  if (typeof sourcetype === 'string') {
    const open: OpenMeta = named<never>()
    if (typeof host === 'string') open.host = host
    open.sourcetype = sourcetype
    added = open
  }
  for (const key in envelope) {
    switch (key) {
      case 'event':
      case 'source':
      case 'time':
      case 'sourcetype':
        continue
    }
    if (key === 'host' && added !== nothing) continue
    if (fits(key, envelope[key])) added = withKey(added, key, envelope[key])
  }
  return added
}

/** `meta` that says that the message had no readable time. */
export function undatedMeta(meta: Meta): Meta {
  return withKey(meta, 'createdAtMissing', true)
}
