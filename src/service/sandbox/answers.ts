import { isJsonObject, type JsonObject } from '../../wire/record.ts'

/** The codes with which the sandbox refuses a request, and their statuses (docs/interface.md, reading 3). */
const statuses = {
  invalid_webhook_url: 400,
  invalid_request: 400,
  unauthorized: 401,
  insufficient_scope: 403,
  not_found: 404,
  webhook_not_found: 404,
  config_not_found: 404,
  vehicle_not_found: 404,
  energy_site_not_found: 404,
  method_not_allowed: 405,
  vehicle_unavailable: 408,
  internal_error: 500,
} as const

/** Refuses a request. */
export function refuse(
  code: keyof typeof statuses,
  description: string,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return Response.json(
    { response: null, error: code, error_description: description },
    { status: statuses[code], headers },
  )
}

/** Refuses a vehicle that is not shared with the business. */
export function refuseVehicle(vin: string): Response {
  return refuse('vehicle_not_found', `No vehicle ${vin.slice(0, 17)} is shared with this business.`)
}

/** Refuses a path that does not exist. */
export function refusePath(): Response {
  return refuse('not_found', 'This path does not exist.')
}

/** Refuses a method. */
export function refuseMethod(allow: string): Response {
  return refuse('method_not_allowed', `This path allows ${allow} only.`, { allow })
}

/** Refuses a body that {@link readBody} could not read. */
export function refuseBody(): Response {
  return refuse('invalid_request', 'The body is not a JSON object of at most a megabyte.')
}

const mostBytes = 1_048_576

/** Reads the JSON object in a request. `undefined` when the body is something else, or larger than a megabyte. */
export async function readBody(request: Request): Promise<JsonObject | undefined> {
  if (Number(request.headers.get('content-length') ?? 0) > mostBytes) return undefined
  try {
    const text = await request.text()
    if (text.length > mostBytes) return undefined
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** As {@link readBody}, except that an empty body is an empty object. */
export async function readOptionalBody(request: Request): Promise<JsonObject | undefined> {
  return (await request.clone().text()).trim() === '' ? {} : readBody(request)
}
