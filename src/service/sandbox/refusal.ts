/** The codes with which the sandbox refuses, and their statuses (docs/interface.md, reading 3). */
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
  too_many_requests: 429,
  internal_error: 500,
} as const

/** Why a request is refused. */
export type RefusalCode = keyof typeof statuses

/** The answer to a request that is refused. */
export function refuse(code: RefusalCode, description: string, headers: Record<string, string> = {}): Response {
  return Response.json(
    { response: null, error: code, error_description: description },
    { status: statuses[code], headers },
  )
}
