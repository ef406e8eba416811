import type { DispatchEvents } from './dispatch/dispatcher.ts'
import { FleethookError } from './errors.ts'
import type { Refusal } from './http/answers.ts'
import type { InboxMessage } from './inbox/inbox.ts'
import type { DeadMessage, Settings } from './options.ts'
import type { ErrorDetails } from './receiver-interface.ts'
import { throttled } from './throttle.ts'

type ErrorHandler = (error: unknown, details: ErrorDetails) => unknown

/** Counts what happens, says in the log what an operator should know, and tells whoever asked to be told. */
export interface Reports {
  readonly received: number
  readonly conflated: number
  readonly deadLettersDropped: number
  readonly topics: Readonly<Record<string, number>>
  readonly refused: Readonly<Record<string, number>>
  onError(handler: ErrorHandler): void
  noteAccepted(messages: readonly InboxMessage[]): void
  noteRefused(refusal: Refusal): void
  noteConflated(messages: number): void
  readonly dispatch: Omit<DispatchEvents, 'roomy' | 'died'>
  noteDead(letter: DeadMessage, dropped: boolean): void
}

/** Refusals of whoever does not know the secret are counted and never logged: strangers must not fill a log. */
const strangers = /* @__PURE__ */ new Set([
  'authorization_missing',
  'authorization_scheme',
  'secret_wrong',
  'path_unknown',
  'method_not_allowed',
])

export function createReports({ log, clock, onDeadLetter }: Settings): Reports {
  const say = throttled(log, clock)
  const handlers: ErrorHandler[] = []
  const topics: Record<string, number> = {}
  const refused: Record<string, number> = {}
  let received = 0
  let conflated = 0
  let deadLettersDropped = 0

  function tell(error: unknown, details: ErrorDetails): void {
    for (const handler of handlers) {
      guarded(
        () => handler(error, details),
        (thrown) => say.error('a handler given to onError failed', where(thrown)),
      )
    }
  }

  return {
    topics,
    refused,
    get received() {
      return received
    },
    get conflated() {
      return conflated
    },
    get deadLettersDropped() {
      return deadLettersDropped
    },

    onError(handler) {
      if (typeof handler !== 'function')
        throw new FleethookError('handler_invalid', `onError takes a function and was given ${typeof handler}.`)
      handlers.push(handler)
    },

    noteAccepted(messages) {
      for (const { kind, event } of messages) {
        if (kind !== 'wire' || event === undefined) continue
        received += 1
        topics[event.topic] = (topics[event.topic] ?? 0) + 1
      }
    },

    noteRefused({ error, eventNumber }) {
      refused[error] = (refused[error] ?? 0) + 1
      if (!strangers.has(error)) {
        say.warn(
          `a request was refused (${error}), and the service sends each message once`,
          eventNumber === undefined ? {} : { eventNumber },
        )
      }
    },

    noteConflated(messages) {
      conflated += messages
    },

    dispatch: {
      failed(error, event, delivery) {
        say.warn(`a handler for ${event.topic} failed`, {
          delivery: delivery.id,
          attempt: delivery.attempt,
          ...where(error),
        })
        tell(error, { kind: 'handler', event, delivery })
      },
      inboxFailed(error) {
        say.error('the inbox failed', where(error))
        tell(error, { kind: 'inbox' })
      },
      lost(messages) {
        say.error(`${messages} acknowledged messages were not handled in time and are lost`, { messages })
      },
    },

    noteDead(letter, dropped) {
      if (dropped) deadLettersDropped += 1
      say.error(
        `a message of topic ${letter.event.topic} was given up after ${letter.attempts} attempts: see receiver.deadLetters`,
        {
          delivery: letter.id,
        },
      )
      if (onDeadLetter === undefined) return
      guarded(
        () => onDeadLetter(letter),
        (thrown) => {
          say.error('the function given as `onDeadLetter` failed', where(thrown))
          tell(thrown, { kind: 'dead-letter-handler', event: letter.event })
        },
      )
    },
  }
}

/** Runs what a user gave us, whether it throws or rejects. */
function guarded(run: () => unknown, failed: (thrown: unknown) => void): void {
  new Promise((resolve) => resolve(run())).catch(failed)
}

/** What of an error may stand in a log: its name and the place, for its message can quote a payload. */
function where(error: unknown): Record<string, unknown> {
  if (error instanceof FleethookError) return { error: error.code, reason: error.message }
  if (!(error instanceof Error)) return { error: `a ${typeof error} was thrown` }
  const at = error.stack
    ?.split('\n')
    .find((line) => /^\s*at /.test(line) || /@/.test(line))
    ?.trim()
  return at === undefined ? { error: error.name } : { error: error.name, at }
}
