/**
 * The third argument of `fetch`: it keeps work alive after the answer. On Workers it does so for a while. The servers
 * of the other runtimes pass {@link detachedContext}.
 */
export interface ExecutionContext {
  /** Keeps the request's work alive until the promise settles. */
  waitUntil(work: Promise<unknown>): void
  passThroughOnException(): void
  readonly props: unknown
  /** The process outlives the request, so nothing has to be kept alive. */
  readonly detached?: true
  /** For tests: called with a promise that resolves when every handler of the request's messages has succeeded or given up. */
  readonly watch?: (handled: Promise<void>) => void
}

/** For runtimes whose process outlives every request. */
export const detachedContext: ExecutionContext = {
  waitUntil: () => {},
  passThroughOnException: () => {},
  props: {},
  detached: true,
}

/** Whether work is bound to its request: the runtime ends it with the request, unless `waitUntil` keeps it alive. */
export function isBound(context: ExecutionContext | undefined): context is ExecutionContext {
  return context !== undefined && context.detached !== true
}

/** What work has from the request that brought it: the bindings, and the `waitUntil` that keeps the work alive. */
export interface RequestScope {
  readonly env: unknown
  readonly context: ExecutionContext | undefined
}

/** For work that no request brought. */
export const noRequest: RequestScope = { env: undefined, context: undefined }

const lasting: unique symbol = Symbol('lasting')
const ofConnection: ReadonlySet<string> = new Set(['incoming', 'outgoing', 'remoteAddr', 'completed'])

export function envOfRequest(bindings: object, connection: object): object {
  // An assignment would write the properties into the environment of the process.
  return Object.create(bindings, { ...Object.getOwnPropertyDescriptors(connection), [lasting]: { value: bindings } })
}

/** The bindings for handlers, without the connection: a message can wait for hours and must not keep it in memory. */
export function lastingEnv(env: unknown): unknown {
  if (typeof env !== 'object' || env === null) return env
  if (lasting in env) return env[lasting]
  const isConnection = ('incoming' in env && 'outgoing' in env) || ('remoteAddr' in env && 'completed' in env)
  return isConnection && Object.keys(env).every((key) => ofConnection.has(key)) ? undefined : env
}

/**
 * Returns a function that calls `run` in the I/O context of this call. On Workers, work may run only in the context of
 * its own request, and its turn may come while another one is served. A continuation runs where it was registered.
 */
export function contextHop(run: () => void): () => void {
  let open = (): void => {}
  void new Promise<void>((resolve) => {
    open = resolve
  }).then(run)
  return open
}
