import * as z from 'zod/mini'
import { checked, readJson, unwrapped } from './answer.ts'
import type { Call } from './call.ts'
import type { ServiceRequest } from './request.ts'
import type { CallOptions } from './webhook.ts'

/** The vehicle commands that the specification names. There are others. */
export type VehicleCommand = 'charge_start' | 'wake_up' | (string & {})

/** What came of a command. */
export interface CommandResult {
  /** `false`: the product received the command and refused it, for this `reason`. */
  readonly result?: boolean
  readonly reason?: string
  readonly [key: string]: unknown
}

const schema: z.ZodMiniType<CommandResult> = z.looseObject({
  result: z.exactOptional(z.boolean()),
  reason: z.exactOptional(z.string()),
})

/** Sends a command, once: the service itself wakes the vehicle first and retries a command that failed. */
export function sendCommand(call: Call, path: string, body: object, { signal }: CallOptions): Promise<CommandResult> {
  const request: ServiceRequest = { method: 'POST', path, body, idempotent: false, signal }
  return call(request, async (answer) => checked(schema, unwrapped(await readJson(answer, request)) ?? {}, request))
}
