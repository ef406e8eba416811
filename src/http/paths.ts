/** The kind of path of a request. On the collector's own paths, the stricter rules of the envelope apply. */
export type Door = 'root' | 'collector'

/** The collector protocol's paths. Each relay uses a fixed one of them. */
export const collectorPath = '/services/collector'

export type PathTarget = Door | 'health' | 'healthz' | 'readyz'

const targets: ReadonlyMap<string, PathTarget> = /* @__PURE__ */ new Map([
  ['', 'root'],
  [collectorPath, 'collector'],
  [`${collectorPath}/event`, 'collector'],
  [`${collectorPath}/event/1.0`, 'collector'],
  [`${collectorPath}/health`, 'health'],
  [`${collectorPath}/health/1.0`, 'health'],
  ['/healthz', 'healthz'],
  ['/readyz', 'readyz'],
])

/** The target of a path, with or without a trailing slash. `undefined` for an unknown path, and for one outside of `basePath`. */
export function targetOf(path: string, basePath: string = ''): PathTarget | undefined {
  if (!path.startsWith(basePath)) return undefined
  return targets.get(path.slice(basePath.length, path.endsWith('/') ? -1 : undefined))
}
