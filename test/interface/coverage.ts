/** Where a part of the specification is in the code, and what holds it there. */
export interface Coverage {
  /** A section of the specification, or an item that public clients of the service rely on beyond it. */
  readonly section: string
  /** The files of the client or the receiver, what plays the service, and the tests. */
  readonly module: readonly string[]
  readonly sandbox: readonly string[]
  readonly tests: readonly string[]
}

/** Reads a table: the section, what it says, the client or the receiver, what plays the service, and the tests. */
function rowsOf(table: string): readonly Coverage[] {
  const files = (cell: string, folder: string, ending: string): readonly string[] =>
    cell.split(' ').map((name) => (name.startsWith('adapters/') ? '' : folder) + name + ending)
  return table
    .trim()
    .split('\n')
    .map((line) => {
      const [section = '', , module = '', sandbox = '', tests = ''] = line.split('|').map((cell) => cell.trim())
      return {
        section,
        module: files(module, 'src/', '.ts'),
        sandbox: files(sandbox, 'src/', '.ts'),
        tests: files(tests, 'test/', '.test.ts'),
      }
    })
}

/** Every section of the specification that says something about the interface. */
export const specified: readonly Coverage[] = rowsOf(`
  What the service does | a business uses the whole interface | service/client/client | service/sandbox/sandbox | client/runtimes interface/service
  Streaming config | field settings are typed and checked; a misspelled name is a type error | service/client/config | service/sandbox/business-routes | client/config sandbox/config
  Business webhook | set, replaced, paused, read without its 'auth', deleted | service/client/webhook | service/sandbox/business-routes | client/webhook sandbox/vehicles
  Other resources | returned as the service answered them | service/client/products | service/sandbox/vehicle-routes | client/paths sandbox/endpoints
  States and transitions | paused, 'null' and 'config_not_found' are different results | service/client/config | service/sandbox/world | client/config sandbox/config
  Business configuration | 'webhook', 'defaultConfig' | service/client/webhook service/client/config | service/sandbox/business-routes | client/webhook client/config sandbox/config
  Per-vehicle streaming config | 'config(vin)', 'ignoredFields' | service/client/config | service/sandbox/business-routes | client/config sandbox/config
  Streaming by SSE | 'stream(vin)', which reconnects | service/client/stream service/client/sse-items | service/sandbox/sse | client/stream client/sse-items sandbox/sse
  Vehicles | 'vehicle(vin)' | service/client/products | service/sandbox/vehicle-routes | client/paths sandbox/endpoints
  Energy sites | 'energySite(id)' | service/client/products | service/sandbox/energy-sites | client/paths sandbox/endpoints
  Commands | 'command', 'wakeUp', sent once | service/client/products | service/sandbox/commands | client/paths client/retry sandbox/endpoints
  Requests refused with 403 insufficient_scope | the hint says what to do instead | service/client/service-error | service/sandbox/sandbox | client/errors sandbox/endpoints
  Consented products | 'products()', 'refill' | service/client/products service/client/refill | service/sandbox/business-routes | client/paths client/refill sandbox/vehicles
  Authentication | the key, in one header, to one address | service/client/call service/client/connection | service/sandbox/sandbox | client/webhook client/errors sandbox/endpoints
  Authentication of outgoing webhook messages | the secret, with and without the collector's scheme | http/secret | wire/encode | http/secret sandbox/vehicles
  Webhook delivery | answered at once, kept, then handled | receiver | service/sandbox/deliveries | http/answers inbox/acknowledgment sandbox/vehicles
  Topics | recognized by the key of the payload | wire/envelope | service/sandbox/world | wire/topics sandbox/receiver
  Payload of a data message | one reading for three formats | wire/normalizer | wire/encode | wire/normalize wire/round-trip sandbox/receiver
  Server-Sent Events | items become the same events | service/client/stream | service/sandbox/sse | client/stream sandbox/sse
  Errors | 'ServiceError': code, status, hint, request id | service/client/service-error service/client/webhook-url | service/sandbox/answers | client/errors client/webhook-url sandbox/endpoints
  Limits | retries respect 'Retry-After' | service/client/call service/client/service-error | service/sandbox/deliveries | client/retry sandbox/vehicles
  Versioning | paths have version 1; unknown members are kept | service/client/call | service/sandbox/sandbox | client/paths client/webhook sandbox/endpoints
`)

/** What public clients of the service rely on beyond the specification. */
export const reliedOn: readonly Coverage[] = rowsOf(`
  Config | a setting may be 'null'; answers have 'updated_vehicles', 'skipped_vehicles' and 'ignoredFields' | service/client/config | service/sandbox/business-routes | client/config client/conversation sandbox/config sandbox/conversation
  Products | each has a 'region'; another product is 403 'business_product_not_consented' | service/client/products | service/sandbox/business-routes | client/paths client/conversation sandbox/conversation sandbox/business
  Regions | a product's host is that of its 'region' | service/client/regions | service/sandbox/business-routes | client/regions sandbox/business
  Business codes | each has a hint; 'business_auth_unavailable' has 'Retry-After' | service/client/service-error | service/sandbox/control-routes | client/errors sandbox/business
  Planned end of a stream | the service ends a stream after five minutes | service/client/stream | service/sandbox/sse | client/snapshot sandbox/sse
  Snapshot | a stream begins with 'retry: 1000' and messages with 'isCache' | service/client/stream service/client/stream-events | service/sandbox/world | client/snapshot client/conversation sandbox/sse sandbox/conversation
  Items | have no name and no id; alerts and errors are lists | service/client/sse-items | service/sandbox/sse | client/conversation sandbox/sse
  More topics | 'config', 'credits', and four topics of energy sites | service/client/stream service/client/stream-events | service/sandbox/world | client/conversation sandbox/sse sandbox/conversation
  States | 'online', 'offline', 'asleep', and 'driving' of the specification | service/client/products | service/sandbox/car | sandbox/vehicles
  Location | is an object; text is from old firmware | service/client/stream | service/fleet/streaming | fleet/normalized
  Enums | have the full constant; the short form is from old firmware | service/client/stream | service/fleet/messages | fleet/normalized
  Numbers | are numbers; text is from old firmware | service/client/stream | service/fleet/streaming | fleet/normalized
  Refusals | 'invalid_token', 'invalid_command', the text of 408, 403 for '/api/metadata' | service/client/service-error | service/sandbox/answers | client/errors client/conversation sandbox/endpoints sandbox/conversation
  Commands of the maker | every documented command with its parameters; 'wake_up' answers the vehicle; 'charge_history' is a 'POST' | service/client/products | service/sandbox/commands | client/paths client/conversation sandbox/endpoints sandbox/conversation
  Documents | 'endpoints', 'location_data' on request, the members of summary, site and history, rounded numbers | service/client/products | service/sandbox/vehicle-routes service/sandbox/energy-sites | client/paths client/conversation sandbox/endpoints fleet/signals
  Chunked GET | a stray last chunk does no harm | service/client/connection | adapters/cli/sandbox | cli/sandbox
  VIN | the 4th character tells the model | service/client/products | service/fleet/vin | fleet/fleet fleet/signals
`)
