import type { Command } from 'commander'
import prettyMs from 'pretty-ms'
import * as z from 'zod/mini'
import type { Failing, FailingHandler } from '../../src/observe/stats.ts'
import { operates } from './operator.ts'
import { table, timeOf } from './terminal.ts'

const handlerForm = z.object({
  handler: z.string(),
  branch: z.optional(z.string()),
  messages: z.number(),
  vehicles: z.number(),
  since: z.string(),
  error: z.optional(z.string()),
})

/** `stats().failing`, or the answer of `GET /failing`, as JSON. */
export interface ShownFailing extends Omit<Failing, 'handlers'> {
  readonly handlers: readonly (Omit<FailingHandler, 'since' | 'error'> & {
    readonly since: string
    readonly branch?: string | undefined
    readonly error?: string | undefined
  })[]
}

export const failingForm: z.ZodMiniType<ShownFailing> = z.object({
  messages: z.number(),
  vehicles: z.number(),
  handlers: z.array(handlerForm),
})

export function defineFailing(command: Command): void {
  command.description(
    'Shows what fails now: messages that wait because a handler failed for them, by handler, with its last error. They are tried again, and ' +
      'messages that fail for good become dead letters. This includes all branches and, with postgresInbox, all processes. ' +
      'The exit status is 1 when something fails.',
  )
  operates<[], object>(command, async ({ operator, print }) => {
    const found = failingForm.parse(await operator.ask('GET', '/failing'))
    print(found, () => {
      if (found.messages === 0) return 'Nothing fails now.'
      const hasBranches = found.handlers.some(({ branch }) => branch !== undefined)
      const rows = found.handlers.map(({ handler, branch, messages, vehicles, since, error = '' }) => [
        ...(hasBranches ? [branch ?? 'receiver'] : []),
        handler,
        String(messages),
        String(vehicles),
        timeOf(since),
        error,
      ])
      const head = hasBranches ? ['WHERE', 'HANDLER'] : ['HANDLER']
      const shown = table([...head, 'MESSAGES', 'VEHICLES', 'SINCE (UTC)', 'LAST ERROR'], rows)
      return `${failingSentence(found, Date.now())}\n\n${shown}`
    })
    return found.messages === 0
  })
}

/** `3 messages of 2 vehicles have failed for 12m: billing.` */
export function failingSentence({ messages, vehicles, handlers }: ShownFailing, nowMs: number): string {
  const oldest = handlers.reduce((first, { since }) => Math.min(first, Date.parse(since)), nowMs)
  const names = handlers
    .slice(0, 3)
    .map(({ handler, branch }) => (branch === undefined ? handler : `${handler} of the branch ${branch}`))
  const more = handlers.length > names.length ? ', …' : ''
  const who = `${handlers.length === 1 ? 'the handler is' : 'the handlers are'} ${names.join(', ')}${more}`
  const these = messages === 1 ? '1 message' : `${messages} messages`
  const of = vehicles === 0 ? '' : ` of ${vehicles === 1 ? '1 vehicle' : `${vehicles} vehicles`}`
  return `${these}${of} ${messages === 1 ? 'has' : 'have'} failed for ${prettyMs(nowMs - oldest, { compact: true })}: ${who}.`
}
