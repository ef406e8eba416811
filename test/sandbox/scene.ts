import { type Client, createClient } from 'fleethook/client'
import { createSandbox, type OutgoingMessage, type Sandbox, type SandboxOptions } from 'fleethook/sandbox'
import { type FakeClock, fakeClock } from 'fleethook/testing'
import { remember } from '../http/ways.ts'

export const apiKey = 'the-key-of-the-business'
export const startAt: number = Date.UTC(2026, 5, 1, 8)

// oxlint-disable-next-line no-explicit-any -- JSON that each test reads as it expects it
export type Loose = any

/** A sandbox whose time stands still, its client, and the messages that it posted. */
export interface Scene {
  readonly sandbox: Sandbox
  readonly client: Client
  readonly clock: FakeClock
  readonly posted: OutgoingMessage[]
  /** A shared vehicle. */
  readonly vin: string
  ask(method: string, path: string, body?: unknown): Promise<{ readonly status: number; readonly body: Loose }>
}

export async function sceneOf(options: Partial<SandboxOptions> = {}): Promise<Scene> {
  const clock = fakeClock(startAt)
  const posted: OutgoingMessage[] = []
  const sandbox = createSandbox({
    apiKey,
    speed: 0,
    clock,
    post: async (message) => {
      posted.push(message)
      return 200
    },
    ...options,
  })
  const send = async (url: string, init: RequestInit): Promise<Response> => sandbox.fetch(new Request(url, init))
  const client = createClient({ baseUrl: 'https://sandbox.example.com', apiKey, fetch: send, log: remember() })
  const ask: Scene['ask'] = async (method, path, body) => {
    const answer = await send(`https://sandbox.example.com${path}`, {
      method,
      headers: { authorization: `Bearer ${apiKey}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    return { status: answer.status, body: text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : text }
  }
  const vin = '0FL3EETV6T0000000'
  return { sandbox, client, clock, posted, vin, ask }
}

/** The messages that were posted, as JSON. */
export function messagesIn(posted: readonly OutgoingMessage[]): readonly Loose[] {
  return posted.map(({ body }) => JSON.parse(body))
}
