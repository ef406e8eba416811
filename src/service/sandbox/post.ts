/** One message on its way to the webhook. */
export interface OutgoingMessage {
  readonly url: string
  readonly headers: { readonly [name: string]: string }
  readonly body: string
  /** Whether the TLS certificate is to be checked. */
  readonly verify: boolean
  /** Aborted when the answer takes too long. */
  readonly signal: AbortSignal
}

/** Posts a message, once, following no redirection. Resolves to the status of the answer; rejects when there is none. */
export type PostMessage = (message: OutgoingMessage) => Promise<number>

/** Posts by `fetch`. It always checks the certificate: the web's standards have no way not to. */
export async function postByFetch({ url, headers, body, signal }: OutgoingMessage): Promise<number> {
  const answer = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'manual' })
  await answer.body?.cancel()
  return answer.status
}
