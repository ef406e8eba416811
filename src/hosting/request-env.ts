const lasting: unique symbol = Symbol('lasting')
const ofConnection: ReadonlySet<string> = new Set(['incoming', 'outgoing', 'remoteAddr', 'completed'])

/** The bindings of one request: those of the process, and what is known of the connection that it came by. */
export function envOfRequest(bindings: object, connection: object): object {
  // Not assigned: that would reach through to the environment of the process.
  return Object.create(bindings, { ...Object.getOwnPropertyDescriptors(connection), [lasting]: { value: bindings } })
}

/**
 * The bindings that are kept for handlers: a message that waits for hours must not keep its connection in memory. What
 * `@hono/node-server` and Deno pass where a Worker has its bindings is only a connection.
 */
export function lastingEnv(env: unknown): unknown {
  if (typeof env !== 'object' || env === null) return env
  if (lasting in env) return env[lasting]
  const isConnection = ('incoming' in env && 'outgoing' in env) || ('remoteAddr' in env && 'completed' in env)
  return isConnection && Object.keys(env).every((key) => ofConnection.has(key)) ? undefined : env
}
