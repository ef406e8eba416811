import type { ServiceRequest } from './request.ts'

/**
 * What to do about an error of the service, or nothing where its own text has to do. What the service refuses by rule is
 * explained by the request: the specification's "Requests refused with 403 `insufficient_scope`".
 */
export function hintFor(status: number, code: string, request: ServiceRequest): string | undefined {
  if (code === 'insufficient_scope') return explainScope(request)
  const hint = hints[code] ?? hints[codeOf[status] ?? '']
  if (hint !== undefined) return hint
  if (status >= 500) return 'The service has a trouble of its own: try again later.'
  if (status >= 300 && status < 400)
    return 'Is `baseUrl` the service’s address, with https:? The client follows no redirection with your key.'
  return undefined
}

/** What a status means when its answer has no code that we know. */
const codeOf: Readonly<Record<number, string>> = { 401: 'unauthorized', 429: 'too_many_requests' }

const hints: Readonly<Record<string, string>> = {
  unauthorized: 'Give the business’s bearer token as `apiKey`. Is the environment variable set, and of this service?',
  too_many_requests: 'Wait for as long as `retryAfterMs` says, and ask less often.',
  invalid_webhook_url:
    'Give a URL that the internet can reach; while developing, stream by SSE, or use the sandbox with --allow-local.',
  webhook_not_found: 'Set one with `webhook.set`.',
  config_not_found: 'The vehicle does not stream: call `config(vin).replace` or `patch` first.',
  vehicle_not_found: 'Is it shared with your business? `products()` lists what is.',
  energy_site_not_found: 'Is it shared with your business? `products()` lists what is.',
  vehicle_unavailable: 'The vehicle is asleep or offline: call `wakeUp(vin)`, or wait until it says that it is online.',
}

function explainScope({ method, path }: ServiceRequest): string {
  if (path.endsWith('/fleet_telemetry_config') && method !== 'GET') {
    return 'What a vehicle streams is set with `config(vin).patch`, `replace` and `stop`, for everyone who streams from it.'
  }
  if (/\/vehicles\/[^/]+\/(drivers|invitations)\b/.test(path)) {
    return 'Drivers and invitations belong to the customer’s own account: only the customer changes them.'
  }
  if (!/^\/api\/1\/(vehicles|energy_sites)\/[^/]+/.test(path)) {
    return 'Only shared products can be asked for, by VIN or energy site id. `products()` lists them.'
  }
  if (path.startsWith('/api/1/energy_sites/')) {
    return 'Your business has no command access to energy sites. It is chosen at set-up, and every customer who connects grants it.'
  }
  return (
    'Your business has no command access to vehicles, or to charging only, or this customer granted no more than charging. ' +
    'Access is chosen at set-up, and every customer who connects grants it.'
  )
}
