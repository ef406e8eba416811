/**
 * A recorded conversation with the service: requests and answers in the shapes that clients of the service rely on. The values are
 * ours. `test/client/conversation.test.ts` holds the client to it, and `test/sandbox` holds the sandbox to it, so that code which
 * works against one works against the other.
 *
 * Paths hold `{vin}` and `{site}`. Each side fills in its own vehicle and energy site with {@link pathOf}. Each side compares
 * an answer with {@link differences}.
 */

/** A JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json }

/** The state before the request. By default the vehicle is online and streams, and commands are allowed. */
export type Given =
  /** The vehicle is asleep, and a read does not wake it. */
  | 'asleep'
  /** The vehicle streams `BatteryLevel` at its default interval: the setting was sent as `null`. */
  | 'default interval'
  /** The service has answered too many requests. */
  | 'rate limited'
  /** The vehicle in the path is not shared with the business. */
  | 'not consented'

/** The side that an exchange is for. `client`: the service sometimes answers like this, and the client has to read it. */
export type Side = 'both' | 'client' | 'sandbox'

/** One request and its answer. */
export interface Exchange {
  readonly name: string
  /** The item of `reliedOn` that it comes from, as a row of coverage.ts names it. */
  readonly item: string
  readonly side: Side
  readonly given?: Given
  readonly request: {
    readonly method: 'GET' | 'PUT' | 'PATCH' | 'POST' | 'DELETE'
    readonly path: string
    readonly body?: Json
    /** A wrong key is sent. */
    readonly wrongKey?: true
  }
  readonly answer: {
    readonly status: number
    readonly headers?: Readonly<Record<string, string>>
    /** An answer has each of these members, with a value of the same type. It may have more. A list may be empty. */
    readonly body?: Json
  }
  /** Members of the body, with dots, whose value has to be the same too. */
  readonly exact?: readonly string[]
  /** Members that the body does not have. */
  readonly absent?: readonly string[]
}

/** One connection of a stream. */
export interface RecordedStream {
  readonly name: string
  readonly item: string
  /** The path of the request. Its method is `GET`. */
  readonly path: string
  /** The stream begins with a `retry:` line with this number of milliseconds. */
  readonly retryMs: number
  /** The messages of the snapshot, which come first. Each has `isCache: true`. */
  readonly snapshot: readonly { readonly [name: string]: Json }[]
  /** The messages that follow. They come at their own time, in any order. */
  readonly live: readonly { readonly [name: string]: Json }[]
}

export const recordedVin = '0FL3ETV14T0000004'
export const recordedSite = '2252147638651020'

const vehicle = '/api/1/vehicles/{vin}'
const site = '/api/1/energy_sites/{site}'
const createdAt = '2026-11-21T10:00:00.000Z'

/** The body of every error. */
const refusal = (error: string): Json => ({ response: null, error, error_description: 'What went wrong.' })

/** Requests and answers, one of each kind. */
export const exchanges: readonly Exchange[] = [
  {
    name: 'a field is streamed at its default interval',
    item: 'Config',
    side: 'both',
    request: { method: 'PATCH', path: '/api/config/{vin}', body: { fields: { BatteryLevel: null } } },
    answer: { status: 200, body: { updated_vehicles: 1, ignoredFields: [] } },
    exact: ['updated_vehicles', 'ignoredFields'],
  },
  {
    name: 'a whole config is replaced, and names that the service does not know are dropped',
    item: 'Config',
    side: 'both',
    request: {
      method: 'POST',
      path: '/api/config/{vin}',
      body: { fields: { BatteryLevel: { interval_seconds: 60, minimum_delta: 1 }, Gaer: { interval_seconds: 1 } } },
    },
    answer: { status: 200, body: { updated_vehicles: 1, ignoredFields: ['Gaer'] } },
    exact: ['updated_vehicles', 'ignoredFields'],
  },
  {
    name: 'a config changes no vehicle, and the answer says why',
    item: 'Config',
    side: 'client',
    request: { method: 'PATCH', path: '/api/config/{vin}', body: { fields: { BatteryLevel: null } } },
    answer: {
      status: 200,
      body: { updated_vehicles: 0, skipped_vehicles: { missing_key: [recordedVin], max_configs: [] } },
    },
  },
  {
    name: 'a stored setting is an empty object',
    item: 'Config',
    side: 'client',
    given: 'default interval',
    request: { method: 'GET', path: '/api/config/{vin}' },
    answer: { status: 200, body: { fields: { BatteryLevel: {} } } },
  },
  {
    name: 'a vehicle stops streaming',
    item: 'Config',
    side: 'both',
    request: { method: 'DELETE', path: '/api/config/{vin}' },
    answer: { status: 200, body: { updated_vehicles: 1 } },
    exact: ['updated_vehicles'],
  },
  {
    name: 'a setting of the wrong type is refused',
    item: 'Errors',
    side: 'sandbox',
    request: {
      method: 'PATCH',
      path: '/api/config/{vin}',
      body: { fields: { BatteryLevel: { interval_seconds: 0 } } },
    },
    answer: { status: 400, body: refusal('invalid_request') },
    exact: ['response', 'error'],
  },
  {
    name: 'a product has its region',
    item: 'Consented products',
    side: 'both',
    request: { method: 'GET', path: '/api/business/products' },
    answer: {
      status: 200,
      body: {
        response: [
          { product_type: 'vehicle', product_id: recordedVin, region: 'NA', customer: { id: 'c1', ref: 'our-7' } },
          { product_type: 'energy', product_id: recordedSite, region: 'EU', customer: { id: 'c1', ref: 'our-7' } },
        ],
      },
    },
  },
  {
    name: 'the stream of a product that no customer shares is refused for good',
    item: 'Consented products',
    side: 'both',
    given: 'not consented',
    request: { method: 'GET', path: '/sse/{vin}' },
    answer: { status: 403, body: refusal('business_product_not_consented') },
    exact: ['response', 'error'],
  },
  {
    name: 'a wrong key is refused',
    item: 'Errors',
    side: 'both',
    request: { method: 'GET', path: '/api/business/products', wrongKey: true },
    answer: { status: 401, body: refusal('invalid_token') },
    exact: ['response', 'error'],
  },
  {
    name: 'an asleep vehicle does not answer a read, in the words of the maker',
    item: 'Errors',
    side: 'both',
    given: 'asleep',
    request: { method: 'GET', path: `${vehicle}/vehicle_data` },
    answer: { status: 408, body: refusal('vehicle unavailable: vehicle is offline or asleep') },
    exact: ['response', 'error'],
  },
  {
    name: 'the same has a code of its own at times',
    item: 'Errors',
    side: 'client',
    given: 'asleep',
    request: { method: 'GET', path: `${vehicle}/vehicle_data` },
    answer: { status: 408, body: refusal('vehicle_unavailable') },
  },
  {
    name: 'an unknown command is refused',
    item: 'Errors',
    side: 'both',
    request: { method: 'POST', path: `${vehicle}/command/fly`, body: {} },
    answer: { status: 400, body: refusal('invalid_command') },
    exact: ['response', 'error'],
  },
  {
    name: 'a command without its parameter is refused',
    item: 'Errors',
    side: 'both',
    request: { method: 'POST', path: `${vehicle}/command/set_charge_limit`, body: {} },
    answer: { status: 400, body: refusal('invalid_command') },
    exact: ['response', 'error'],
  },
  {
    name: 'the metadata of the service is closed to the key of a business',
    item: 'Errors',
    side: 'sandbox',
    request: { method: 'GET', path: '/api/metadata' },
    answer: { status: 403, body: refusal('business_route_not_allowed') },
    exact: ['response', 'error'],
  },
  {
    name: 'too many requests are refused with the wait',
    item: 'Errors',
    side: 'both',
    given: 'rate limited',
    request: { method: 'GET', path: '/api/business/products' },
    answer: { status: 429, headers: { 'retry-after': '7' }, body: refusal('too_many_requests') },
    exact: ['response'],
  },
  {
    name: 'a vehicle is woken, and is the answer',
    item: 'Commands',
    side: 'both',
    given: 'asleep',
    request: { method: 'POST', path: `${vehicle}/wake_up`, body: {} },
    answer: { status: 200, body: { response: { vin: recordedVin, state: 'online', id_s: '1234567890' } } },
    exact: ['response.state'],
  },
  {
    name: 'a command is answered with its result',
    item: 'Commands',
    side: 'both',
    request: { method: 'POST', path: `${vehicle}/command/set_charge_limit`, body: { percent: 80 } },
    answer: { status: 200, body: { response: { result: true, reason: '' } } },
    exact: ['response.result'],
  },
  {
    name: 'the charge history is asked for by POST',
    item: 'Commands',
    side: 'both',
    request: { method: 'POST', path: `${vehicle}/charge_history` },
    answer: { status: 200, body: { response: {} } },
  },
  {
    name: 'the summary of a vehicle',
    item: 'Documents',
    side: 'both',
    request: { method: 'GET', path: vehicle },
    answer: {
      status: 200,
      body: {
        response: {
          vin: recordedVin,
          state: 'online',
          id_s: '1234567890',
          tokens: [],
          option_codes: '',
          granular_access: { hide_private: false },
          calendar_enabled: true,
        },
      },
    },
  },
  {
    name: 'the sections of the full document that were asked for',
    item: 'Documents',
    side: 'both',
    request: { method: 'GET', path: `${vehicle}/vehicle_data?endpoints=location_data%3Bcharge_state` },
    answer: {
      status: 200,
      body: {
        response: {
          vin: recordedVin,
          state: 'online',
          charge_state: { battery_level: 81 },
          location_data: { latitude: 30.222222, longitude: -97.617347 },
        },
      },
    },
    absent: ['response.climate_state'],
  },
  {
    name: 'the full document, without the location that was not asked for',
    item: 'Documents',
    side: 'both',
    request: { method: 'GET', path: `${vehicle}/vehicle_data` },
    answer: {
      status: 200,
      body: {
        response: {
          vin: recordedVin,
          state: 'online',
          charge_state: { battery_level: 81 },
          climate_state: { inside_temp: 21.5 },
        },
      },
    },
    absent: ['response.location_data'],
  },
  {
    name: 'what a site consists of',
    item: 'Documents',
    side: 'both',
    request: { method: 'GET', path: `${site}/site_info` },
    answer: {
      status: 200,
      body: { response: { components: { solar: true, battery: true, grid: true, wall_connectors: [] } } },
    },
  },
  {
    name: 'what a site does now',
    item: 'Documents',
    side: 'both',
    request: { method: 'GET', path: `${site}/live_status` },
    answer: { status: 200, body: { response: { wall_connectors: [] } } },
  },
]

/** The streams of a vehicle and of an energy site. */
export const streams: readonly RecordedStream[] = [
  {
    name: 'a vehicle',
    item: 'Streams',
    path: '/sse/{vin}',
    retryMs: 1_000,
    snapshot: [
      { state: 'online', createdAt, vin: recordedVin, isCache: true },
      {
        data: {
          BatteryLevel: 81.5,
          Gear: 'ShiftStateD',
          Location: { latitude: 30.222222, longitude: -97.617347 },
          Locked: true,
        },
        createdAt,
        vin: recordedVin,
        isCache: true,
      },
      {
        status: 'CONNECTED',
        networkInterface: 'cellular',
        connectionId: 'a1',
        createdAt,
        vin: recordedVin,
        isCache: true,
      },
      { alerts: [], createdAt, vin: recordedVin, isCache: true },
      { errors: [], createdAt, vin: recordedVin, isCache: true },
    ],
    live: [
      {
        data: { VehicleSpeed: 34.797, DetailedChargeState: 'DetailedChargeStateDisconnected', Locked: false },
        createdAt: '2026-11-21T10:00:01.500Z',
        vin: recordedVin,
      },
      {
        alerts: [
          {
            name: 'VCFRONT_a180_windowOpen',
            startedAt: '2026-11-21T10:00:02.000Z',
            audiences: ['Customer', 'Service'],
          },
        ],
        createdAt: '2026-11-21T10:00:02.000Z',
        vin: recordedVin,
      },
      {
        errors: [
          { name: 'connection_lost', createdAt: '2026-11-21T10:00:03.000Z', tags: { reason: 'network' }, body: 'lost' },
        ],
        createdAt: '2026-11-21T10:00:03.000Z',
        vin: recordedVin,
      },
      {
        config: { fields: { BatteryLevel: { interval_seconds: 60 }, Gear: null } },
        createdAt: '2026-11-21T10:00:04.000Z',
        vin: recordedVin,
      },
      { credits: { balance: 995, cost: 5 }, createdAt: '2026-11-21T10:00:05.000Z' },
      { state: 'asleep', createdAt: '2026-11-21T10:00:06.000Z', vin: recordedVin },
    ],
  },
  {
    name: 'an energy site',
    item: 'Streams',
    path: '/sse/{site}',
    retryMs: 1_000,
    snapshot: [],
    live: [
      {
        live_status: { solar_power: 3_100, battery_power: -1_200, percentage_charged: 64.5, wall_connectors: [] },
        createdAt,
        site_id: recordedSite,
      },
      {
        site_info: { site_name: 'Home', components: { solar: true, battery: true, grid: true, wall_connectors: [] } },
        createdAt,
        site_id: recordedSite,
      },
      { tariff_content_v2: { code: 'our-tariff', name: 'Night and day' }, createdAt, site_id: recordedSite },
      { totals: { total_home_usage: 12_400, total_solar_generation: 34_000 }, createdAt, id: recordedSite },
    ],
  },
]

/** A recorded path with this vehicle and this site in it. */
export function pathOf(path: string, vin: string = recordedVin, siteId: string = recordedSite): string {
  return path.replace('{vin}', vin).replace('{site}', siteId)
}

/** The stream as it comes over the wire: no item has a name or an id. */
export function textOf({ retryMs, snapshot, live }: RecordedStream): string {
  const items = [...snapshot, ...live].map((message) => `data: ${JSON.stringify(message)}\n\n`)
  return [`retry: ${retryMs}\n\n`, ...items].join('')
}

/**
 * How a body differs from the recorded one: a member is missing, or its value has another type. An item of a list is compared with
 * the first recorded item. Empty when the body has the recorded shape.
 */
export function differences({ answer, exact = [], absent = [] }: Exchange, body: unknown): readonly string[] {
  return [
    ...(answer.body === undefined ? [] : shapeDifferences(answer.body, body, 'body')),
    ...exact.flatMap((path) => {
      const [wanted, given] = [at(answer.body, path), at(body, path)].map((value) => JSON.stringify(value))
      return wanted === given ? [] : [`${path} is ${given} instead of ${wanted}`]
    }),
    ...absent.filter((path) => at(body, path) !== undefined).map((path) => `${path} must not be there`),
  ]
}

/** As {@link differences}, for any two values: a message of a stream and the recorded one. */
export function shapeDifferences(recorded: Json, value: unknown, path: string): readonly string[] {
  if (kindOf(recorded) !== kindOf(value)) return [`${path} is ${kindOf(value)} instead of ${kindOf(recorded)}`]
  if (Array.isArray(recorded) && Array.isArray(value)) {
    const [first] = recorded
    if (first === undefined) return []
    return value.flatMap((item, index) => shapeDifferences(first, item, `${path}.${index}`))
  }
  if (kindOf(recorded) !== 'an object') return []
  const members: object = Object(value)
  return Object.entries<Json>(Object(recorded)).flatMap(([name, wanted]) => {
    const given: unknown = Object.hasOwn(members, name) ? Reflect.get(members, name) : undefined
    return shapeDifferences(wanted, given, `${path}.${name}`)
  })
}

function at(value: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((inner, name) => Object(inner)[name], value)
}

function kindOf(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}
