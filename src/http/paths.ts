/** Which paths a message came in by. On the collector's own paths the envelope's stricter rules hold. */
export type Door = 'root' | 'collector'

/** The collector protocol's paths: relays hard-wire one of them. */
export const collectorPath = '/services/collector'

const targets: ReadonlyMap<string, Door | 'health'> = /* @__PURE__ */ new Map([
  ['', 'root'],
  [collectorPath, 'collector'],
  [`${collectorPath}/event`, 'collector'],
  [`${collectorPath}/event/1.0`, 'collector'],
  [`${collectorPath}/health`, 'health'],
  [`${collectorPath}/health/1.0`, 'health'],
])

/** What is at a path below the receiver's mount, with or without a trailing slash. `undefined`: nothing. */
export function targetOf(path: string): Door | 'health' | undefined {
  return targets.get(path.endsWith('/') ? path.slice(0, -1) : path)
}
