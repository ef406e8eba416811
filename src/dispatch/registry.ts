import type { Env } from 'hono'
import { FleethookError } from '../errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { Handler, HandlerContext, HandlerFilter, Subject } from './handler.ts'
import type { FieldCatalogue } from '../events/fields.ts'

/** A handler as the dispatcher sees it: what it is for has been decided already. */
export type AnyHandler = (event: FleetEvent | MalformedBody, context: HandlerContext<Env>) => unknown

/** The handlers of a receiver, in the order in which they were registered. */
export interface Registry {
  add<S extends Subject, E extends Env, Fields extends FieldCatalogue>(
    subjects: S | readonly S[],
    handler: Handler<S, E, Fields>,
    filter?: HandlerFilter,
  ): void
  /** The handlers for an event, in order. */
  matching(event: FleetEvent | MalformedBody): readonly AnyHandler[]
}

interface Registered {
  readonly handler: AnyHandler
  readonly wants: (event: FleetEvent | MalformedBody) => boolean
}

const topics = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity', 'unknown', 'gap'] as const
const subjects: readonly string[] = [...topics, '*', 'malformed']

/** An empty registry. */
export function createRegistry(): Registry {
  const byTopic = new Map<string, Registered[]>()

  return {
    add(given, handler, filter) {
      const wanted = typeof given === 'string' ? [given] : given
      for (const subject of wanted) check(subject)
      if (typeof handler !== 'function') {
        throw new FleethookError(
          'handler_invalid',
          `The handler for ${wanted.join(', ')} is ${typeof handler}, not a function.`,
        )
      }
      // It is only ever called with events of the topics it was registered for.
      const registered = { handler: handler as AnyHandler, wants: filtering(filter) }
      for (const topic of new Set(
        wanted.flatMap((subject: Subject): readonly Subject[] => (subject === '*' ? topics : [subject])),
      )) {
        byTopic.set(topic, [...(byTopic.get(topic) ?? []), registered])
      }
    },

    matching(event) {
      const matching: AnyHandler[] = []
      for (const { handler, wants } of byTopic.get(event.topic) ?? []) if (wants(event)) matching.push(handler)
      return matching
    },
  }
}

function check(subject: string): void {
  if (subjects.includes(subject)) return
  throw new FleethookError('handler_invalid', `There is no topic "${subject}".`, {
    hint: `The topics are ${subjects.join(', ')}.`,
  })
}

const always = (): boolean => true

function filtering(filter: HandlerFilter | undefined): (event: FleetEvent | MalformedBody) => boolean {
  if (filter === undefined) return always
  const { fields, vins } = filter
  const listed = typeof vins === 'function' || vins === undefined ? undefined : new Set(vins)
  const wantsVin = typeof vins === 'function' ? vins : listed && ((vin: string) => listed.has(vin))
  return (event) => {
    if (wantsVin !== undefined) {
      const vin = event.topic === 'malformed' ? undefined : event.vin
      if (vin === undefined || !wantsVin(vin)) return false
    }
    if (fields === undefined) return true
    return event.topic === 'data' && fields.some((field) => event.data[field] !== undefined)
  }
}
