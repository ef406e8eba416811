import * as z from 'zod/mini'
import { elapsedMs } from '../../base/clock.ts'
import { createCall, get, send } from './call.ts'
import type { Connection } from './connection.ts'

/** Products change their region with their owner. The list of them is read again after this time, in milliseconds. */
const hourMs = 3_600_000
/** The shortest time between two requests for the list, in milliseconds. */
const minuteMs = 60_000

/** What decides where a product is asked. The rest of the list is read by `products()`. */
const rows = z.array(z.looseObject({ product_id: z.unknown(), region: z.nullish(z.string()) }))

/**
 * Sends each request about a product to the address of its region, which `GET /api/business/products` tells. Everything else, and a
 * product without an address for its region, goes to the first address.
 */
export function byRegion(connection: Connection, addresses: ReadonlyMap<string, string>): Connection {
  if (addresses.size < 2) return connection
  const { baseUrl, clock } = connection
  const call = createCall(connection)
  let regions: Promise<ReadonlyMap<string, string>> | undefined
  let readAt = -Infinity

  async function read(): Promise<ReadonlyMap<string, string>> {
    const list = await send(call, get('/api/business/products'), rows)
    return new Map(list.map(({ product_id: id, region }) => [String(id), region?.toLowerCase() ?? '']))
  }

  /** Reads the list when it is old. A list that could not be read is read again by the next request. */
  function known(olderThanMs: number): Promise<ReadonlyMap<string, string>> {
    if (regions !== undefined && elapsedMs(clock) - readAt < olderThanMs) return regions
    readAt = elapsedMs(clock)
    const reading = read()
    regions = reading
    reading.catch(() => {
      if (regions === reading) regions = undefined
    })
    return reading
  }

  return {
    ...connection,
    async addressOf(path) {
      const id = productIn(path)
      if (id === undefined) return baseUrl
      const region = (await known(hourMs)).get(id) ?? (await known(minuteMs)).get(id)
      return addresses.get(region ?? '') ?? baseUrl
    },
  }
}

/** The VIN or the id of the site that a path names. */
const productIn = (path: string): string | undefined =>
  /^\/(?:api\/(?:1\/vehicles|1\/energy_sites|config|image)|sse)\/([\w-]+)/.exec(path)?.[1]
