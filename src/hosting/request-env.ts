const lasting: unique symbol = Symbol('lasting')
const ofConnection: ReadonlySet<string> = new Set(['incoming', 'outgoing', 'remoteAddr', 'completed'])

/** The bindings of one request: those of the process, and what is known of the connection that it came by. */
export function envOfRequest(bindings: object, connection: object): object {
  // Not assigned: that would reach through to the environment of the process.
  return Object.create(bindings, { ...Object.getOwnPropertyDescriptors(connection), [lasting]: { value: bindings } })
}

/** What of bindings is kept for the handlers: a message that waits for hours must not keep its connection in memory. */
export function lastingEnv(env: unknown): unknown {
  if (isOfRequest(env)) return env[lasting]
  return isConnection(env) ? undefined : env
}

function isOfRequest(env: unknown): env is { readonly [lasting]: object } {
  return typeof env === 'object' && env !== null && lasting in env
}

/** What `@hono/node-server`, or Deno, gives where a Worker has its bindings: a connection, and nothing beside it. */
function isConnection(env: unknown): boolean {
  if (typeof env !== 'object' || env === null) return false
  const isOne = ('incoming' in env && 'outgoing' in env) || ('remoteAddr' in env && 'completed' in env)
  return isOne && Object.keys(env).every((key) => ofConnection.has(key))
}
