/** The kind of path of a request. On the collector's own paths, the stricter rules of the envelope apply. */
export type Door = 'root' | 'collector'

/** The collector protocol's paths. Each relay uses a fixed one of them. */
export const collectorPath = '/services/collector'

const targets: ReadonlyMap<string, Door | 'health'> = /* @__PURE__ */ new Map([
  ['', 'root'],
  [collectorPath, 'collector'],
  [`${collectorPath}/event`, 'collector'],
  [`${collectorPath}/event/1.0`, 'collector'],
  [`${collectorPath}/health`, 'health'],
  [`${collectorPath}/health/1.0`, 'health'],
])

/** The target of a path below the receiver's mount, with or without a trailing slash. `undefined` for an unknown path. */
export function targetOf(path: string): Door | 'health' | undefined {
  return targets.get(path.endsWith('/') ? path.slice(0, -1) : path)
}
