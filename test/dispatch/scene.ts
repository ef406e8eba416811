import { type Answer, createReceiver, type DrainResult, type Log, type Receiver, type ReceiverOptions } from 'fleethook'
import { type FakeClock, fakeClock, turn } from './fake-clock.ts'

/** A receiver with everything around it that a test checks. */
export interface Scene {
  readonly receiver: Receiver
  readonly clock: FakeClock
  /** Everything that was logged, one text for each line. */
  readonly lines: readonly string[]
  /** Passes in a message as the host of `receiver.accept` does. */
  post(body: unknown): Promise<Answer>
  /** Passes in a message, and lets its handlers run. */
  send(body: unknown): Promise<void>
  /** Drains the receiver while this time passes. */
  drainedIn(ms: number, options?: Parameters<Receiver['drain']>[0]): Promise<DrainResult>
}

/** Options. The scene adds the secret and the clock. */
export function scene(options: Partial<ReceiverOptions> = {}, clock: FakeClock = fakeClock()): Scene {
  const lines: string[] = []
  const receiver = createReceiver({ secret: false, clock, log: logInto(lines), ...options })
  const post = (body: unknown): Promise<Answer> => receiver.accept({ authorization: undefined, body })
  return {
    receiver,
    clock,
    lines,
    post,
    async send(body) {
      await post(body)
      await turn()
    },
    async drainedIn(ms, options) {
      const drained = receiver.drain(options)
      await clock.advance(ms)
      return drained
    },
  }
}

export function logInto(lines: string[]): Log {
  const say =
    (level: string) =>
    (message: string, details?: Record<string, unknown>): void => {
      lines.push(`${level}: ${message} ${JSON.stringify(details ?? {})}`)
    }
  return { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') }
}

/** A `data` message of the service's own format. `Odometer` identifies a message within a test. */
export function data(vin: string, odometer: number, more: object = {}): object {
  return { vin, createdAt: '2024-02-24T04:58:44.123Z', data: { Odometer: odometer, ...more } }
}

export function state(vin: string, value: string): object {
  return { vin, createdAt: '2024-02-24T04:58:44.123Z', state: value }
}

/** Handlers that end when the test says so. */
export interface Gates {
  /** Waits under a name until the test opens it or makes it fail. */
  wait(name: string): Promise<void>
  open(name: string): void
  fail(name: string, error: unknown): void
  /** Who waits, in the order of coming. */
  readonly waiting: readonly string[]
}

export function gates(): Gates {
  const out = new Map<string, { resolve: () => void; reject: (error: unknown) => void }>()
  const gate = (name: string): { resolve: () => void; reject: (error: unknown) => void } => {
    const found = out.get(name)
    if (found === undefined) throw new Error(`nobody waits at ${name}; waiting: ${[...out.keys()].join(', ')}`)
    out.delete(name)
    return found
  }
  return {
    wait: (name) => new Promise<void>((resolve, reject) => out.set(name, { resolve, reject })),
    open: (name) => gate(name).resolve(),
    fail: (name, error) => gate(name).reject(error),
    get waiting() {
      return [...out.keys()]
    },
  }
}
