import type { DeadMessage } from '../inbox/dead-letters.ts'
import { guarded, throttled } from '../base/log.ts'
import type { DispatchEvents } from '../dispatch/attempt.ts'
import { FleethookError, withHint } from '../base/errors.ts'
import type { Refusal } from '../http/answers.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { Settings } from './options.ts'
import type { ErrorDetails } from './interface.ts'

type ErrorHandler = (error: unknown, details: ErrorDetails) => unknown

interface ReportCounts {
  received: number
  recovered: number
  replayed: number
  conflated: number
  /** Acknowledged, and then refused by the inbox. */
  unkept: number
  deadLettersDropped: number
  discarded: number
}

/** Counts what happens, logs what an operator should know, and calls the user's `onError` and `onDeadLetter`. */
export interface Reports {
  readonly counts: Readonly<ReportCounts>
  readonly topics: Readonly<Record<string, number>>
  readonly refused: Readonly<Record<string, number>>
  onError(handler: ErrorHandler): void
  noteAccepted(messages: readonly InboxMessage[]): void
  readonly noteRefused: (refusal: Refusal) => void
  readonly noteConflated: (messages: number) => void
  noteRecovered(messages: readonly Pick<InboxMessage, 'kind'>[]): void
  noteReplayed(message: Pick<InboxMessage, 'kind'>): void
  /** Messages were acknowledged before the inbox had them, and it refused them. */
  noteLost(messages: readonly InboxMessage[]): void
  /** A drain has ended, and no event reported these gaps. */
  noteUnreportedGaps(gaps: number): void
  readonly dispatch: Omit<DispatchEvents, 'onCapacity' | 'died' | 'missed'>
  noteDead(letter: DeadMessage, dropped: number): void
}

/** Refusals of requests without the secret are counted and never logged: strangers must not fill a log. */
const strangers = /* @__PURE__ */ new Set([
  'authorization_missing',
  'authorization_scheme',
  'secret_wrong',
  'secret_unavailable',
  'path_unknown',
  'method_not_allowed',
])

export function createReports({ log, clock, onDeadLetter }: Settings): Reports {
  const say = throttled(log, clock)
  const handlers: ErrorHandler[] = []
  const topics: Record<string, number> = {}
  const refused: Record<string, number> = {}
  const counts: ReportCounts = {
    received: 0,
    recovered: 0,
    replayed: 0,
    conflated: 0,
    unkept: 0,
    deadLettersDropped: 0,
    discarded: 0,
  }

  function tell(error: unknown, details: ErrorDetails): void {
    for (const handler of handlers) {
      guarded(
        () => handler(error, details),
        (thrown) => say.error('a handler given to onError failed', where(thrown)),
      )
    }
  }

  function noteAccepted(messages: readonly InboxMessage[]): void {
    for (const { kind, event } of messages) {
      if (kind !== 'wire' || event === undefined) continue
      counts.received += 1
      topics[event.topic] = (topics[event.topic] ?? 0) + 1
    }
  }

  return {
    topics,
    refused,
    counts,

    onError(handler) {
      if (typeof handler !== 'function')
        throw new FleethookError('handler_invalid', `onError takes a function and was given ${typeof handler}.`)
      handlers.push(handler)
    },

    noteAccepted,

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
      counts.conflated += messages
    },

    noteRecovered(messages) {
      for (const { kind } of messages) if (kind === 'wire') counts.recovered += 1
    },

    noteReplayed({ kind }) {
      if (kind === 'wire') counts.replayed += 1
    },

    noteLost(messages) {
      noteAccepted(messages)
      const lost = messages.filter(({ kind }) => kind === 'wire').length
      counts.unkept += lost
      say.error('acknowledged messages did not reach the inbox and are lost', { messages: lost })
    },

    noteUnreportedGaps(gaps) {
      if (gaps > 0) say.error('messages were lost, and no gap event could report it before the end', { gaps })
    },

    dispatch: {
      failed(error, event, delivery, { messages }) {
        const batch = messages === undefined ? {} : { messages }
        say.warn(`a handler for ${messages === undefined ? '' : 'a batch of '}${event.topic} failed`, {
          delivery: delivery.id,
          attempt: delivery.attempt,
          ...batch,
          ...where(error),
        })
        tell(error, { kind: 'handler', event, delivery, ...batch })
      },
      resting(handler, atMs, failures) {
        say.error(
          `${handlerName(handler)} fails for every vehicle and rests as a whole: its messages wait`,
          { failures, nextTryAt: new Date(atMs).toISOString() },
          handler,
        )
      },
      recovered(handler) {
        say.warn(`${handlerName(handler)} succeeds again: its messages go on`)
      },
      discarded(reason, topic, messages) {
        counts.discarded += messages
        say.warn(`a handler for ${topic} discarded what it was given`, { reason: reason.slice(0, 200), messages })
      },
      inboxFailed(error) {
        say.error('the inbox failed', where(error))
        tell(error, { kind: 'inbox' })
      },
      lost(messages) {
        say.error('acknowledged messages were not handled in time and are lost', { messages })
      },
    },

    noteDead(letter, dropped) {
      counts.deadLettersDropped += dropped
      say.error(
        `a message of topic ${letter.event.topic} is a dead letter after ${letter.attempts} ${letter.attempts === 1 ? 'attempt' : 'attempts'}: see receiver.deadLetters`,
        { delivery: letter.id },
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

/** How a log calls a handler. */
function handlerName(handler: object): string {
  const { name } = 'handler' in handler && typeof handler.handler === 'function' ? handler.handler : Object(handler)
  return typeof name === 'string' && /^\w{1,60}$/.test(name) ? `the handler ${name}` : 'a handler'
}

/** What a log may show of an error: its name and place. Its message can quote a payload. */
function where(error: unknown): Record<string, unknown> {
  try {
    if (error instanceof FleethookError) return { error: error.code, reason: withHint(error) }
    if (!(error instanceof Error)) return { error: `a ${typeof error} was thrown` }
    const name = /^[A-Z]\w{0,40}$/.test(error.name) ? error.name : 'Error'
    const at = placeIn(error)
    return at === undefined ? { error: name } : { error: name, at }
  } catch {
    return { error: 'an error that cannot be read' }
  }
}

/** File, line and column of the innermost frame. A stack begins with the message, which can look like frames. */
function placeIn({ stack, message }: Error): string | undefined {
  if (typeof stack !== 'string' || !stack.includes(message)) return undefined
  const frames = stack.slice(stack.indexOf(message) + message.length).split('\n')
  for (const frame of frames) {
    const [, place] = /^\s+at (?:.* \()?((?:file:|node:|\/|[A-Za-z]:\\)[^()\s]*:\d+:\d+)\)?$/.exec(frame) ?? []
    if (place !== undefined) return place
  }
  return undefined
}
