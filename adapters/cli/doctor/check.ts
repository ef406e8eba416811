import type { Client } from '../../../src/service/client/client.ts'
import type { Environment } from '../arguments.ts'
import type { Operating } from '../operator.ts'

/** The result of a check. `'warn'`: it works, but something may go wrong later. `'skip'`: it could not be checked here. */
export type Status = 'ok' | 'warn' | 'fail' | 'skip'

export interface Finding {
  /** Stable, so that scripts can use it. */
  readonly id: `${FindingGroup}.${string}`
  readonly status: Status
  /** What was found, with the value. Never a secret. */
  readonly found: string
  /** The one thing to do. */
  readonly todo?: string
}

export const groups = [
  'runtime',
  'secret',
  'webhook',
  'network',
  'tls',
  'proxy',
  'inbox',
  'receiver',
  'clock',
  'end-to-end',
] as const
export type FindingGroup = (typeof groups)[number]

/** What checks get to know about this machine and the business. */
export interface Circumstances {
  readonly variable: Environment
  /** The file with variables. It may be missing. */
  readonly envFile: string
  readonly url: URL | undefined
  /** The file of the inbox. It may be missing. */
  readonly inbox: string
  /** The service, when its address and key are known. */
  readonly client: Client | undefined
  readonly serviceUrl: string | undefined
  /** Certificates that `tls` and `proxy` trust in addition to the built-in ones, as PEM. Only tests set it. */
  readonly ca: string | undefined
  readonly vin: string | undefined
  readonly signal: AbortSignal
  /** Asks the running receiver of this machine. Rejects when none runs. */
  readonly ask: Operating['connection']['ask']
  /** The test message `test` as it reached this receiver. `undefined`: it did not arrive. Rejects when no receiver runs. */
  readonly arrived: (test: string) => Promise<ArrivedTest | undefined>
  /** Refused requests and failed handlers that this receiver still remembers, oldest first. Rejects when none runs. */
  readonly errors: () => Promise<readonly KeptError[]>
}

/** What the feed of a receiver says about a refused request or a failed attempt. */
export interface KeptError {
  readonly kind: 'refused' | 'failed'
  /** ISO 8601. */
  readonly at: string
  /** The code of the refusal, or the text of what the handler threw: its name, then its message. */
  readonly error: string
  readonly hint: string | undefined
  /** The request was one of doctor's own. */
  readonly isTest: boolean
  /** `undefined`: the inbox failed. */
  readonly handler: string | undefined
  readonly topic: string | undefined
  readonly attempt: number
  /** When the handler runs again. ISO 8601. */
  readonly nextAt: string | undefined
}

/** What the feed of a receiver says about a test message. */
export interface ArrivedTest {
  readonly bytes: number
  readonly headers: readonly { readonly name: string; readonly length: number }[]
}

/** Checks that belong together. They run one after another, because later ones depend on earlier ones. */
export type Check = (circumstances: Circumstances) => AsyncIterable<Finding>

export const ok = (id: Finding['id'], found: string): Finding => ({ id, status: 'ok', found })
export const skip = (id: Finding['id'], found: string): Finding => ({ id, status: 'skip', found })
export const warn = (id: Finding['id'], found: string, todo: string): Finding => ({ id, status: 'warn', found, todo })
export const fail = (id: Finding['id'], found: string, todo: string): Finding => ({ id, status: 'fail', found, todo })

interface Otherwise {
  orFail(found: string, todo: string): Finding
  orWarn(found: string, todo: string): Finding
}

/** The finding is ok if `isOk`. The function that follows says what it is otherwise. */
export function okIf(isOk: boolean, id: Finding['id'], found: string): Otherwise {
  const choose = (other: Finding): Finding => (isOk ? ok(id, found) : other)
  return {
    orFail: (problem, todo) => choose(fail(id, problem, todo)),
    orWarn: (problem, todo) => choose(warn(id, problem, todo)),
  }
}
