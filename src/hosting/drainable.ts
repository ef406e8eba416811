/// <reference lib="esnext.disposable" preserve="true" />

/** Why a receiver that stops takes no messages, in words that are fit for strangers. */
export const stoppingReason = 'the receiver is stopping'

/** When the 2xx is sent: on receipt, once the inbox has made the message durable, or once all its handlers are done. */
export type Ack = 'received' | 'stored' | 'handled'

/**
 * What a stored message survives. With `memory`, nothing: it ends with its process. With `disk`, a crash and a power cut. With
 * `replicated`, the loss of a machine. With `database`, what that database survives, and the loss of this machine.
 */
export type Durability = 'memory' | 'disk' | 'replicated' | 'database'

/** The result of a drain. It counts messages that came over the wire, from the call of `drain` on. */
export interface DrainResult {
  /** Messages that were handled, or became dead letters, before the deadline. */
  readonly handled: number
  /** Messages that wait in a durable inbox. A later process handles them. */
  readonly left: number
  /** Messages in memory that were not handled at the deadline. They are lost. */
  readonly lost: number
  /** The same of each branch, by its name. Left out: there are none. */
  readonly branches?: Readonly<Record<string, DrainResult>>
}

/** How to drain a receiver. */
export interface DrainOptions {
  /** The longest that a drain may take, in milliseconds. Default 25,000. */
  readonly deadlineMs?: number | undefined
  /**
   * With a durable inbox: how long running handlers may go on, in milliseconds. Default 2,000. No other handler starts, because
   * the next process handles what waits. An inbox in memory has no next process, so all of its messages are handled.
   */
  readonly handlerGraceMs?: number | undefined
  /** Until this promise resolves, the receiver still takes messages: its server's sockets are not closed yet. */
  readonly takeUntil?: Promise<unknown> | undefined
  /**
   * How long the server has accepted no new connections, in milliseconds. Called when the drain ends: the `gap` of the stop
   * begins that long before. Default: the time since the receiver stopped taking messages.
   */
  readonly notListeningMs?: (() => number) | undefined
}

/** What a server knows when it opens a receiver. */
export interface OpenOptions {
  /**
   * The listening socket outlived the last process, so connections waited in the kernel. Then a clean stop is no
   * gap. A crash still is one: it broke the connections that the process had accepted. Default `false`.
   */
  readonly listeningWasKept?: boolean
}

/** A receiver as a server sees it: how to open and drain it, and what its 2xx promises. */
export interface Drainable {
  /**
   * Opens the inbox and goes on with the messages that an earlier process left. `serve` calls it before it listens; without
   * `serve` the first request does. Resolves at once when the inbox is open. Rejects when it cannot be opened.
   */
  readonly open: (options?: OpenOptions) => Promise<void>
  /**
   * Takes no more messages (503) and ends all work. With an inbox in memory it waits until all messages are handled, or until
   * the deadline (default 25,000 ms). With a durable inbox no handler starts, running handlers get `handlerGraceMs` (default
   * 2,000), and the next process handles the rest. Then it aborts signals and counts what is left. Never ends the process. A
   * second call returns the same promise. `await using receiver = …` drains at the end of the block.
   */
  readonly drain: (options?: DrainOptions) => Promise<DrainResult>
  readonly ack: Ack
  readonly durability: Durability
  /** The value of the option `inbox`. */
  readonly inbox: object
}

/**
 * Why a runtime refused a request before a receiver saw it. The answers are 400, 408, 417 and 431. `connections_exceeded` has
 * no answer.
 */
export type RuntimeRefusal =
  'request_malformed' | 'request_timeout' | 'expectation_unsupported' | 'headers_too_large' | 'connections_exceeded'

/** The status of each refusal of a runtime (0: no answer), and what to do about it. */
export const runtimeRefusals: Readonly<Record<RuntimeRefusal, { readonly status: number; readonly hint: string }>> = {
  request_malformed: { status: 400, hint: 'The request is not HTTP. Look at a proxy that changes requests.' },
  request_timeout: {
    status: 408,
    hint: 'The client sent its request too slowly: see `headersTimeoutMs` and `requestTimeoutMs` of serve.',
  },
  expectation_unsupported: { status: 417, hint: 'The request has an Expect header other than 100-continue.' },
  headers_too_large: { status: 431, hint: 'The headers of the request are too large. Look at a proxy that adds some.' },
  connections_exceeded: { status: 0, hint: 'There are too many connections at once: see `maxConnections` of serve.' },
}

const byHandler = /* @__PURE__ */ new WeakMap<object, Drainable>()

interface RoutedApp {
  readonly routes: readonly { readonly handler: object }[]
}

/** Remembers the receiver of these routes, so that a server can drain the receivers of an app. */
export function markRoutes(app: RoutedApp, receiver: Drainable): void {
  for (const { handler } of app.routes) byHandler.set(handler, receiver)
}

/** Whether it is a Hono app, and not a receiver. */
export function isRouted(served: object): served is RoutedApp {
  return 'routes' in served && Array.isArray(served.routes)
}

/** The receivers that are mounted in an app, directly or through other apps. */
export function receiversIn(app: RoutedApp): readonly Drainable[] {
  const found = new Set<Drainable>()
  for (const { handler } of app.routes) {
    const receiver = byHandler.get(innermost(handler))
    if (receiver !== undefined) found.add(receiver)
  }
  return [...found]
}

/** Hono wraps the handlers of a mounted app with its own error handler. It keeps the wrapped handler in a property. */
function innermost(handler: object): object {
  const inner: unknown = Reflect.get(handler, '__COMPOSED_HANDLER')
  return typeof inner === 'function' ? innermost(inner) : handler
}
