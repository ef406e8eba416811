import type { Seen } from './programs/app.ts'
import { secret } from './targets.ts'

/** A message of the service's own format. */
export function message(vin: string, number = 0): string {
  return JSON.stringify({ data: { BatteryLevel: number }, createdAt: '2026-05-01T00:00:00.000Z', vin })
}

/** Posts a message and resolves to the status when the answer is complete. */
export async function post(
  url: string,
  vin: string,
  number = 0,
  headers: Readonly<Record<string, string>> = {},
): Promise<number> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization: secret, ...headers },
    body: message(vin, number),
  })
  await response.arrayBuffer()
  return response.status
}

/** What the app has seen so far. */
export async function seen(url: string): Promise<Seen> {
  return (await fetch(`${url}/seen`)).json() as Promise<Seen>
}

/** Lets the app continue with the work that it holds back. */
export async function letIt(url: string, step: 'store' | 'handle'): Promise<void> {
  await fetch(`${url}/let/${step}`, { method: 'POST' })
}

/** The beginning of a request, up to its body. */
export const head = (bodyBytes: number): string =>
  `POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: ${secret}\r\ncontent-length: ${bodyBytes}\r\n\r\n`
