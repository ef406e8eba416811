import type { HandledEvent } from '../../adapters/cli/conform/receiver-conformance.ts'

/** Reads what a target has handled. Each call asks for what is new, because a suite asks each millisecond. */
export function createHandled(urlOf: () => string): () => Promise<readonly HandledEvent[]> {
  const known: HandledEvent[] = []
  return async () => {
    const after = known.length
    const added: HandledEvent[] = JSON.parse(await (await fetch(`${urlOf()}/target/events?after=${after}`)).text())
    // Another call may have had some of these.
    known.splice(after, added.length, ...added)
    return known.slice()
  }
}
