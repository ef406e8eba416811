import { isJsonObject, type JsonObject } from '../../wire/record.ts'

/** The codes with which the sandbox refuses a request, and their statuses (docs/decisions/0021-interface.md, reading 3). */
const statuses = {
  invalid_webhook_url: 400,
  invalid_request: 400,
  invalid_command: 400,
  invalid_token: 401,
  insufficient_scope: 403,
  business_not_active: 403,
  business_route_not_allowed: 403,
  business_permission_missing: 403,
  business_product_not_consented: 403,
  customer_reconnect_required: 403,
  customer_scope_missing: 403,
  not_found: 404,
  webhook_not_found: 404,
  config_not_found: 404,
  method_not_allowed: 405,
  vehicle_unavailable: 408,
  too_many_requests: 429,
  internal_error: 500,
  business_auth_unavailable: 503,
} as const

export type RefusalCode = keyof typeof statuses

/** The code in the body, where it differs from the name: the maker's own text. */
const texts: { readonly [code in RefusalCode]?: string } = {
  vehicle_unavailable: 'vehicle unavailable: vehicle is offline or asleep',
}

/** Refuses a request. The description says what is wrong and what to do. */
export function refuse(
  code: RefusalCode,
  description: string,
  headers: Readonly<Record<string, string>> = {},
): Response {
  return Response.json(
    { response: null, error: texts[code] ?? code, error_description: description },
    { status: statuses[code], headers },
  )
}

export function refuseProduct(id: string): Response {
  return refuse(
    'business_product_not_consented',
    `No customer shares ${id.slice(0, 20)} with this business. GET /api/business/products lists what is shared.`,
  )
}

export function refuseRoute(): Response {
  return refuse(
    'business_route_not_allowed',
    'The key of a business may not ask this. GET /api/business/products lists what is shared.',
  )
}

export function refusePath(): Response {
  return refuse(
    'not_found',
    'This path does not exist. Check its spelling, and that the VIN or the id is in its place.',
  )
}

export function refuseMethod(allow: string): Response {
  return refuse('method_not_allowed', `This path allows ${allow} only.`, { allow })
}

export function refuseBody(): Response {
  return refuse(
    'invalid_request',
    'The body is not a JSON object of at most a megabyte. Send one, such as {"fields": {}}.',
  )
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
  try {
    return (await request.clone().text()).trim() === '' ? {} : await readBody(request)
  } catch {
    return undefined
  }
}
