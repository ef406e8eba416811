import * as z from 'zod'
import type { SendResult } from '../../adapters/cli/send.ts'
import type { Ended } from './command.ts'

const resultSchema = z.object({
  ...{ sent: z.number(), accepted: z.number(), refused: z.number(), failed: z.number() },
  startAt: z.iso.datetime(),
  stopped: z.enum(['interrupted', 'unreachable']).nullable(),
  ...{ elapsedMs: z.number(), perSecond: z.number() },
  ackMs: z.object({ p50: z.number(), p95: z.number(), p99: z.number(), max: z.number() }).nullable(),
  problems: z.array(z.object({ what: z.string(), hint: z.string(), count: z.number() })),
})
const printed = z.custom<SendResult>((value) => resultSchema.safeParse(value).success, 'No result of `send --json`.')

/** What `--json` printed. */
export function resultOf({ stdout }: Ended): SendResult {
  return printed.parse(JSON.parse(stdout))
}
