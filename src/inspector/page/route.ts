import { Signal } from './signal.ts'

export const views = ['live', 'vehicles', 'dead', 'health'] as const

export type View = (typeof views)[number]

/** The view in the fragment of the address: `#/vehicles/<vin>/<message>?topic=data`. */
interface Route {
  readonly view: View
  readonly parts: readonly string[]
  readonly query: Readonly<Record<string, string>>
}

function routeOf(fragment: string): Route {
  const [path = '', query = ''] = fragment.replace(/^#\/?/, '').split('?')
  const [first, ...parts] = path
    .split('/')
    .filter((part) => part !== '')
    .map(decoded)
  return {
    view: views.find((view) => view === first) ?? 'live',
    parts,
    query: Object.fromEntries(new URLSearchParams(query)),
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

export function queryOf(members: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(members).filter(([, value]) => value !== undefined && value !== '')
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
}

export function linkTo(view: View, parts: readonly string[] = [], query: Route['query'] = {}): string {
  const path = [view, ...parts].map(encodeURIComponent).join('/')
  const given = queryOf(query)
  return `#/${path}${given === '' ? '' : `?${given}`}`
}

/** Reads the secret from `#secret=…`, and removes it from the address and the history. */
export function secretInAddress(): string | undefined {
  const given = /^#secret=(.+)$/.exec(location.hash)?.[1]
  if (given === undefined) return undefined
  history.replaceState(null, '', '#/live')
  return decoded(given)
}

export const route: Signal<Route> = new Signal(routeOf(''))

export function followAddress(): void {
  const read = (): void => void (route.value = routeOf(location.hash))
  addEventListener('hashchange', read)
  read()
}

export function goTo(link: string): void {
  location.hash = link
}

/** Changes a filter without a new entry in the history. */
export function setQuery(members: Route['query']): void {
  const { view, parts, query } = route.value
  history.replaceState(null, '', linkTo(view, parts, { ...query, ...members }))
  route.value = routeOf(location.hash)
}
