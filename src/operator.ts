/**
 * Dead letters, replays, and the newest state of vehicles of a running receiver, over HTTP, for operators.
 *
 * @module
 */
import type { Hono } from 'hono'
import type { Secret } from './http/secret.ts'
import { createOperatorApp } from './operator/app.ts'
import { guardRoutes } from './operator/guard.ts'
import type { MissingWatch } from './observe/missing.ts'
import type { OperatorApi } from './observe/observer.ts'

export type {
  FactReport,
  FieldReport,
  Letter,
  LetterSummary,
  TimerReport,
  VehicleReport,
  VehicleSummary,
} from './operator/app.ts'
export type { KnownVehicle, KnownVehicles } from './observe/dead-letters.ts'
export type { OperatorApi } from './observe/observer.ts'

/** Options of {@link operatorRoutes}. */
export interface OperatorOptions<Bindings extends object = object> {
  /**
   * The value of `Authorization` that guards the routes. Use another secret than the webhook's, because the routes show payloads
   * and can discard messages. A string, a list for rotation, or a function of the runtime's `env`. It cannot be `false`.
   */
  readonly secret: Exclude<Secret<Bindings>, false> | undefined
  /** `client.missing(receiver)`: `GET /missing` then lists the shared vehicles that are not heard, each with its reason. */
  readonly missing?: MissingWatch
}

/**
 * A Hono app for the commands `fleethook dead --url`, `fleethook replay --url` and `fleethook vehicles --url`. Mount it where
 * operators can reach it and the public cannot. A receiver with an SQLite inbox does not need it, because the commands find
 * it through the inbox file.
 *
 * | request | what |
 * | --- | --- |
 * | `GET /dead?limit&after&vin&topic&from&to` | `{ letters, next }` of the receiver and its branches, without payloads; letters of a branch have its name in `branch`, and `unasked` names branches that did not answer |
 * | `GET /dead/:id` | one, with its event |
 * | `POST /dead/:id/replay`, `/dead/:id/discard` | `{ messages: 0 or 1 }` |
 * | `POST /dead/replay`, `/dead/discard` with `{ vin?, topic?, from?, to?, dryRun? }` | `{ messages }` |
 * | `POST /replay` with `{ from, to, vin?, topic?, dryRun? }` | replays handled messages that the inbox still keeps: `{ messages }` |
 * | `POST /forget` with `{ vin, dryRun? }` | erases everything that is kept of a vehicle: `{ messages, waiting, deadLetters }` |
 * | `GET /vehicles?limit&after` | `{ vehicles, next }`: when each was seen, without values (part `vehicles`) |
 * | `GET /vehicles/:vin` | the newest value of each field, with its age, and whether it is certain |
 * | `GET /feed?vin&topic&errors=true&received=true&since` | Server-Sent Events, each with `{ items, missed? }`, for 20 readers at most; the `id` of an event is the next `since`. `received`: only messages as they came, each with its `text` |
 * | `GET /messages?vin&topic&state&from&to&limit&after` | `{ messages, next }`, newest first: waiting, settled and dead, as long as the inbox keeps them; messages over 16 KiB without payload. A page can be short: go on at `next` |
 * | `GET /messages/:id` | one of them, with `handlers` and `happened` |
 * | `GET /stats` | `receiver.stats()` |
 * | `GET /failing` | `{ messages, vehicles, handlers }` of the receiver and its branches: what fails now, with the last error of each handler |
 * | `/branches/:branch/…` | the same of one branch |
 * | `GET /about` | `{ payloads, receiver, vehicles, ready }` |
 * | `GET /samples` | `{ stepMs, samples }`: figures of the last 15 minutes, every five seconds |
 *
 * Throws `secret_missing` or `option_invalid` for a secret that can never work.
 *
 * @example
 * ```ts
 * import { Hono } from 'hono'
 * import { createReceiver } from 'fleethook'
 * import { operatorRoutes } from 'fleethook/operator'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET }).on('data', (event) => console.log(event.vin))
 * const app = new Hono()
 * app.route('/telemetry', receiver.routes())
 * app.route('/operator', operatorRoutes(receiver, { secret: process.env.FLEETHOOK_OPERATOR_SECRET }))
 * ```
 */
export function operatorRoutes<Bindings extends object = object>(
  operator: OperatorApi,
  { secret, missing }: OperatorOptions<Bindings>,
): Hono<{ Bindings: Bindings }> {
  return guardRoutes('operatorRoutes', secret, createOperatorApp(operator, { missing }))
}
