/** What the path of a maker's endpoint names. */
export type Named =
  | { readonly kind: 'vehicle' | 'site'; readonly id: string; readonly rest: string }
  /** Neither a VIN nor the id of an energy site. */
  | { readonly kind: 'nothing' }

/** Reads a path below `/api/1`. */
export function namedBy(path: string): Named {
  const [, kind, id = '', rest = ''] = /^\/api\/1\/([^/]+)\/([^/]+)(?:\/(.*))?$/.exec(path) ?? []
  if (kind === 'vehicles' && /^[0-9A-HJ-NPR-Z]{17}$/.test(id)) return { kind: 'vehicle', id, rest }
  if (kind === 'energy_sites' && /^\d{1,20}$/.test(id)) return { kind: 'site', id, rest }
  return { kind: 'nothing' }
}

/** Whether a request would change the customer's own account (specification: "Requests refused with 403"). */
export function changesAccount(method: string, rest: string): boolean {
  if (/^(drivers|invitations)(\/|$)/.test(rest)) return method !== 'GET'
  return rest === 'fleet_telemetry_config' && method !== 'GET'
}
