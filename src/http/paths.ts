/** The kind of path of a request. On the collector's own paths, the stricter rules of the envelope apply. */
export type Door = 'root' | 'collector'

/** The collector protocol's paths. Each relay uses a fixed one of them. */
export const collectorPath = '/services/collector'

export type PathTarget = Door | 'health' | 'healthz' | 'readyz'

/** The targets of paths below `basePath`, with and without a trailing slash. All others are unknown. */
export function targetsBelow(basePath: string): ReadonlyMap<string, PathTarget> {
  const targets: readonly (readonly [path: string, target: PathTarget])[] = [
    ['', 'root'],
    [collectorPath, 'collector'],
    [`${collectorPath}/event`, 'collector'],
    [`${collectorPath}/event/1.0`, 'collector'],
    [`${collectorPath}/health`, 'health'],
    [`${collectorPath}/health/1.0`, 'health'],
    ['/healthz', 'healthz'],
    ['/readyz', 'readyz'],
  ]
  return new Map(targets.flatMap(([path, target]) => [path, `${path}/`].map((end) => [basePath + end, target])))
}
