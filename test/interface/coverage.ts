/** Where a part of the specification is in the code, and what holds it there. */
export interface Coverage {
  /** A section of the specification, or an item that public clients of the service rely on beyond it. */
  readonly section: string
  readonly what: string
  /** The client, or the receiver. */
  readonly module: readonly string[]
  /** What plays the service. */
  readonly sandbox: readonly string[]
  readonly tests: readonly string[]
}

/** Every section of the specification that says something about the interface. */
export const specified: readonly Coverage[] = [
  {
    section: 'What the service does',
    what: 'a business uses the whole interface',
    module: ['src/service/client/client.ts'],
    sandbox: ['src/service/sandbox/sandbox.ts'],
    tests: ['test/client/runtimes.test.ts', 'test/interface/service.test.ts'],
  },
  {
    section: 'Streaming config',
    what: 'field settings are typed and checked; a misspelled name is a type error',
    module: ['src/service/client/config.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: ['test/client/config.test.ts', 'test/sandbox/config.test.ts'],
  },
  {
    section: 'Business webhook',
    what: 'set, replaced, paused, read without its `auth`, deleted',
    module: ['src/service/client/webhook.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: ['test/client/webhook.test.ts', 'test/sandbox/vehicles.test.ts'],
  },
  {
    section: 'Other resources',
    what: 'returned as the service answered them',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/vehicle-routes.ts'],
    tests: ['test/client/paths.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'States and transitions',
    what: 'paused, `null` and `config_not_found` are different results',
    module: ['src/service/client/config.ts'],
    sandbox: ['src/service/sandbox/world.ts'],
    tests: ['test/client/config.test.ts', 'test/sandbox/config.test.ts'],
  },
  {
    section: 'Business configuration',
    what: '`webhook`, `defaultConfig`',
    module: ['src/service/client/webhook.ts', 'src/service/client/config.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: ['test/client/webhook.test.ts', 'test/client/config.test.ts', 'test/sandbox/config.test.ts'],
  },
  {
    section: 'Per-vehicle streaming config',
    what: '`config(vin)`, `ignoredFields`',
    module: ['src/service/client/config.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: ['test/client/config.test.ts', 'test/sandbox/config.test.ts'],
  },
  {
    section: 'Streaming by SSE',
    what: '`stream(vin)`, which reconnects',
    module: ['src/service/client/stream.ts', 'src/service/client/sse-items.ts'],
    sandbox: ['src/service/sandbox/sse.ts'],
    tests: ['test/client/stream.test.ts', 'test/client/sse-items.test.ts', 'test/sandbox/sse.test.ts'],
  },
  {
    section: 'Vehicles',
    what: '`vehicle(vin)`',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/vehicle-routes.ts'],
    tests: ['test/client/paths.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'Energy sites',
    what: '`energySite(id)`',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/energy-sites.ts'],
    tests: ['test/client/paths.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'Commands',
    what: '`command`, `wakeUp`, sent once',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/commands.ts'],
    tests: ['test/client/paths.test.ts', 'test/client/retry.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'Requests refused with 403 insufficient_scope',
    what: 'the hint says what to do instead',
    module: ['src/service/client/service-error.ts'],
    sandbox: ['src/service/sandbox/sandbox.ts'],
    tests: ['test/client/errors.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'Consented products',
    what: '`products()`, `refill`',
    module: ['src/service/client/products.ts', 'src/service/client/refill.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: ['test/client/paths.test.ts', 'test/client/refill.test.ts', 'test/sandbox/vehicles.test.ts'],
  },
  {
    section: 'Authentication',
    what: 'the key, in one header, to one address',
    module: ['src/service/client/call.ts', 'src/service/client/connection.ts'],
    sandbox: ['src/service/sandbox/sandbox.ts'],
    tests: ['test/client/webhook.test.ts', 'test/client/errors.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'Authentication of outgoing webhook messages',
    what: "the secret, with and without the collector's scheme",
    module: ['src/http/secret.ts'],
    sandbox: ['src/wire/encode.ts'],
    tests: ['test/http/secret.test.ts', 'test/sandbox/vehicles.test.ts'],
  },
  {
    section: 'Webhook delivery',
    what: 'answered at once, kept, then handled',
    module: ['src/receiver.ts'],
    sandbox: ['src/service/sandbox/deliveries.ts'],
    tests: ['test/http/answers.test.ts', 'test/inbox/acknowledgment.test.ts', 'test/sandbox/vehicles.test.ts'],
  },
  {
    section: 'Topics',
    what: 'recognized by the key of the payload',
    module: ['src/wire/envelope.ts'],
    sandbox: ['src/service/sandbox/world.ts'],
    tests: ['test/wire/topics.test.ts', 'test/sandbox/receiver.test.ts'],
  },
  {
    section: 'Payload of a data message',
    what: 'one reading for three formats',
    module: ['src/wire/normalizer.ts'],
    sandbox: ['src/wire/encode.ts'],
    tests: ['test/wire/normalize.test.ts', 'test/wire/round-trip.test.ts', 'test/sandbox/receiver.test.ts'],
  },
  {
    section: 'Server-Sent Events',
    what: 'items become the same events',
    module: ['src/service/client/stream.ts'],
    sandbox: ['src/service/sandbox/sse.ts'],
    tests: ['test/client/stream.test.ts', 'test/sandbox/sse.test.ts'],
  },
  {
    section: 'Errors',
    what: '`ServiceError`: code, status, hint, request id',
    module: ['src/service/client/service-error.ts', 'src/service/client/webhook-url.ts'],
    sandbox: ['src/service/sandbox/answers.ts'],
    tests: ['test/client/errors.test.ts', 'test/client/webhook-url.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
  {
    section: 'Limits',
    what: 'retries respect `Retry-After`',
    module: ['src/service/client/call.ts', 'src/service/client/service-error.ts'],
    sandbox: ['src/service/sandbox/deliveries.ts'],
    tests: ['test/client/retry.test.ts', 'test/sandbox/vehicles.test.ts'],
  },
  {
    section: 'Versioning',
    what: 'paths have version 1; unknown members are kept',
    module: ['src/service/client/call.ts'],
    sandbox: ['src/service/sandbox/sandbox.ts'],
    tests: ['test/client/paths.test.ts', 'test/client/webhook.test.ts', 'test/sandbox/endpoints.test.ts'],
  },
]

/** What public clients of the service rely on beyond the specification. */
export const reliedOn: readonly Coverage[] = [
  {
    section: 'Config',
    what: 'a setting may be `null`; answers have `updated_vehicles`, `skipped_vehicles` and `ignoredFields`',
    module: ['src/service/client/config.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: [
      'test/client/config.test.ts',
      'test/client/conversation.test.ts',
      'test/sandbox/config.test.ts',
      'test/sandbox/conversation.test.ts',
    ],
  },
  {
    section: 'Products',
    what: 'each has a `region`; another product is 403 `business_product_not_consented`',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/business-routes.ts'],
    tests: [
      'test/client/paths.test.ts',
      'test/client/conversation.test.ts',
      'test/sandbox/conversation.test.ts',
      'test/sandbox/endpoints.test.ts',
    ],
  },
  {
    section: 'Planned end of a stream',
    what: 'the service ends a stream after five minutes',
    module: ['src/service/client/stream.ts'],
    sandbox: ['src/service/sandbox/sse.ts'],
    tests: ['test/client/snapshot.test.ts', 'test/sandbox/sse.test.ts'],
  },
  {
    section: 'Snapshot',
    what: 'a stream begins with `retry: 1000` and messages with `isCache`',
    module: ['src/service/client/stream.ts', 'src/service/client/stream-events.ts'],
    sandbox: ['src/service/sandbox/world.ts'],
    tests: [
      'test/client/snapshot.test.ts',
      'test/client/conversation.test.ts',
      'test/sandbox/sse.test.ts',
      'test/sandbox/conversation.test.ts',
    ],
  },
  {
    section: 'Items',
    what: 'have no name and no id; alerts and errors are lists',
    module: ['src/service/client/sse-items.ts'],
    sandbox: ['src/service/sandbox/sse.ts'],
    tests: ['test/client/conversation.test.ts', 'test/sandbox/sse.test.ts'],
  },
  {
    section: 'More topics',
    what: '`config`, `credits`, and four topics of energy sites',
    module: ['src/service/client/stream.ts', 'src/service/client/stream-events.ts'],
    sandbox: ['src/service/sandbox/world.ts'],
    tests: ['test/client/conversation.test.ts', 'test/sandbox/sse.test.ts', 'test/sandbox/conversation.test.ts'],
  },
  {
    section: 'States',
    what: '`online`, `offline`, `asleep`, and `driving` of the specification',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/car.ts'],
    tests: ['test/sandbox/vehicles.test.ts'],
  },
  {
    section: 'Location',
    what: 'is an object; text is from old firmware',
    module: ['src/service/client/stream.ts'],
    sandbox: ['src/service/fleet/streaming.ts'],
    tests: ['test/fleet/normalized.test.ts'],
  },
  {
    section: 'Enums',
    what: 'have the full constant; the short form is from old firmware',
    module: ['src/service/client/stream.ts'],
    sandbox: ['src/service/fleet/messages.ts'],
    tests: ['test/fleet/normalized.test.ts'],
  },
  {
    section: 'Numbers',
    what: 'are numbers; text is from old firmware',
    module: ['src/service/client/stream.ts'],
    sandbox: ['src/service/fleet/streaming.ts'],
    tests: ['test/fleet/normalized.test.ts'],
  },
  {
    section: 'Refusals',
    what: '`invalid_token`, `invalid_command`, the text of 408, 403 for `/api/metadata`',
    module: ['src/service/client/service-error.ts'],
    sandbox: ['src/service/sandbox/answers.ts'],
    tests: [
      'test/client/errors.test.ts',
      'test/client/conversation.test.ts',
      'test/sandbox/endpoints.test.ts',
      'test/sandbox/conversation.test.ts',
    ],
  },
  {
    section: 'Commands of the maker',
    what: 'every documented command with its parameters; `wake_up` answers the vehicle; `charge_history` is a `POST`',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/commands.ts'],
    tests: [
      'test/client/paths.test.ts',
      'test/client/conversation.test.ts',
      'test/sandbox/endpoints.test.ts',
      'test/sandbox/conversation.test.ts',
    ],
  },
  {
    section: 'Documents',
    what: '`endpoints`, `location_data` on request, the members of summary, site and history, rounded numbers',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/sandbox/vehicle-routes.ts', 'src/service/sandbox/energy-sites.ts'],
    tests: [
      'test/client/paths.test.ts',
      'test/client/conversation.test.ts',
      'test/sandbox/endpoints.test.ts',
      'test/fleet/signals.test.ts',
    ],
  },
  {
    section: 'Chunked GET',
    what: 'a stray last chunk does no harm',
    module: ['src/service/client/connection.ts'],
    sandbox: ['adapters/cli/sandbox.ts'],
    tests: ['test/cli/sandbox.test.ts'],
  },
  {
    section: 'VIN',
    what: 'the 4th character tells the model',
    module: ['src/service/client/products.ts'],
    sandbox: ['src/service/fleet/vin.ts'],
    tests: ['test/fleet/fleet.test.ts', 'test/fleet/signals.test.ts'],
  },
]
