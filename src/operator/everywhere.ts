import { FleethookError } from '../base/errors.ts'
import type { DeadLetters, DeadMessage } from '../observe/dead-letters.ts'
import type { OperatorApi } from '../observe/observer.ts'
import type { Failing, FailingHandler } from '../observe/stats.ts'

/** A receiver, or one of its branches: who is on call asks all of them at once. */
interface Place {
  /** `undefined`: the receiver. */
  readonly branch: string | undefined
  readonly operator: OperatorApi
}

/** A branch that could not be asked, and why: what is missing in an answer. */
export interface Unasked {
  readonly branch: string
  readonly text: string
}

const placesOf = (operator: OperatorApi): readonly Place[] => [
  { branch: undefined, operator },
  ...[...(operator.branches ?? [])].map(([branch, behind]) => ({ branch, operator: behind })),
]

/** What fails now, everywhere. A message that fails on the receiver and on a branch counts twice. */
export async function failingEverywhere(
  operator: OperatorApi,
): Promise<Failing & { readonly handlers: readonly (FailingHandler & { readonly branch?: string | undefined })[] }> {
  const all = await Promise.all(
    placesOf(operator).map(async ({ branch, operator: { failing } }) => ({ branch, found: await failing?.() })),
  )
  const handlers = all.flatMap(({ branch, found }) => (found?.handlers ?? []).map((each) => ({ ...each, branch })))
  return {
    messages: all.reduce((sum, { found }) => sum + (found?.messages ?? 0), 0),
    vehicles: all.reduce((sum, { found }) => sum + (found?.vehicles ?? 0), 0),
    handlers: handlers.toSorted((one, other) => other.messages - one.messages),
  }
}

/** The dead letters of all places, in the order of their ids. A receiver and its branches can have one of the same id. */
export async function* lettersEverywhere(
  operator: OperatorApi,
  which: Parameters<DeadLetters['list']>[0],
  unasked: Unasked[],
): AsyncGenerator<{ readonly branch: string | undefined; readonly letter: DeadMessage }> {
  const lists = placesOf(operator).map(({ branch, operator: { deadLetters } }) => {
    const list = deadLetters.list(which)[Symbol.asyncIterator]()
    return { branch, next: () => list.next().catch((error: unknown) => without(branch, error, unasked)) }
  })
  const heads = await Promise.all(lists.map(({ next }) => next()))
  for (;;) {
    let first = -1
    let least: DeadMessage | undefined
    for (const [at, head] of heads.entries())
      if (head !== undefined && head.done !== true && (least === undefined || head.value.id < least.id))
        [first, least] = [at, head.value]
    const from = lists[first]
    if (least === undefined || from === undefined) return
    yield { branch: from.branch, letter: least }
    heads[first] = await from.next()
  }
}

export async function letterEverywhere(
  operator: OperatorApi,
  id: string,
): Promise<{ readonly branch: string | undefined; readonly letter: DeadMessage } | undefined> {
  for (const { branch, operator: asked } of placesOf(operator)) {
    const letter = await asked.deadLetters.get(id)
    if (letter !== undefined) return { branch, letter }
  }
  return undefined
}

/** Replays or discards one dead letter, or all that match, wherever they are. Resolves to their number. */
export async function changeEverywhere(
  operator: OperatorApi,
  change: 'replay' | 'discard',
  which: Parameters<DeadLetters['replay']>[0],
): Promise<number> {
  let messages = 0
  for (const { operator: asked } of placesOf(operator)) messages += await asked.deadLetters[change](which)
  return messages
}

/** A branch whose inbox does not answer keeps nobody from the rest. */
function without(branch: string | undefined, error: unknown, unasked: Unasked[]): undefined {
  if (branch === undefined || !(error instanceof FleethookError)) throw error
  unasked.push({ branch, text: error.message })
  return undefined
}
