import type { Drainable } from './drainable.ts'

const byHandler = /* @__PURE__ */ new WeakMap<object, Drainable>()

/** A Hono app, as far as its routes are looked at. */
export interface RoutedApp {
  readonly routes: readonly { readonly handler: object }[]
}

/** Remembers whose routes these are, so that a server can drain the receivers of an app that it is given. */
export function markRoutes(app: RoutedApp, receiver: Drainable): void {
  for (const { handler } of app.routes) byHandler.set(handler, receiver)
}

/** The receivers whose routes are mounted in an app, directly or through other apps. */
export function receiversIn(app: RoutedApp): readonly Drainable[] {
  const found = new Set<Drainable>()
  for (const { handler } of app.routes) {
    const receiver = byHandler.get(innermost(handler))
    if (receiver !== undefined) found.add(receiver)
  }
  return [...found]
}

/** Hono wraps the handlers of a mounted app that has an error handler of its own, and says what it wrapped. */
function innermost(handler: object): object {
  const inner: unknown = Reflect.get(handler, '__COMPOSED_HANDLER')
  return typeof inner === 'function' ? innermost(inner) : handler
}
