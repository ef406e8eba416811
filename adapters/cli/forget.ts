import type { Command } from 'commander'
import * as z from 'zod/mini'
import { escapeControls } from '../../src/events/summarize.ts'
import { operates } from './operator.ts'

const erased = z.object({
  messages: z.number(),
  waiting: z.number(),
  deadLetters: z.number(),
  notErased: z.optional(z.array(z.string())),
})
type Erased = z.infer<typeof erased>

interface Given {
  readonly vin: string
  readonly dryRun?: true
}

export function defineForget(command: Command): void {
  command
    .description(
      'Erases everything that the inbox keeps of a vehicle, for a customer who asks for it: messages that wait, those kept for replays, dead ' +
        'letters, its newest state and its timers. Handlers of messages that wait never run. Not erased: what handlers wrote elsewhere, logs, ' +
        'and backups.',
    )
    .requiredOption('--vin <vin>', 'the vehicle')
    .option('--dry-run', 'only count the messages')
    .option('--yes', 'do not ask for confirmation')
  operates<[], Given>(command, async ({ operator, print, agreed }, { vin, dryRun }) => {
    const count = erased.parse(await operator.ask('POST', '/forget', { vin, dryRun: true }))
    const what = `${those(count.messages, 'message')} of ${escapeControls(vin)} (${count.waiting} not handled yet, ${those(count.deadLetters, 'dead letter')})`
    if (dryRun === true) {
      print(count, () => `The inbox has ${what}.${leftOf(count)}`)
      return true
    }
    if (!(await agreed(`Erase ${what} and its state, for good?`))) return false
    const result = erased.parse(await operator.ask('POST', '/forget', { vin }))
    print(
      result,
      () => `Erased ${those(result.messages, 'message')} and the state of ${escapeControls(vin)}.${leftOf(result)}`,
    )
    return true
  })
}

const leftOf = ({ notErased = [] }: Erased): string =>
  notErased.length === 0
    ? ''
    : `\nNot erased in ${those(notErased.length, 'other file')}, which may have more of the vehicle. Delete each, or erase in it with --inbox:` +
      notErased.map((file) => `\n  ${escapeControls(file)}`).join('')

const those = (count: number, name: string): string => `${count} ${name}${count === 1 ? '' : 's'}`
