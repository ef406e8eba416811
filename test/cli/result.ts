import * as z from 'zod'
import type { SendResult } from '../../adapters/cli/send/tally.ts'
import type { Ended } from './command.ts'

const counts = z.object({ sent: z.number(), accepted: z.number(), refused: z.number(), failed: z.number() })
const resultSchema = z.object({
  ...counts.shape,
  startAt: z.iso.datetime(),
  stopped: z.enum(['interrupted', 'unreachable']).nullable(),
  notSent: z.number().nullable(),
  elapsedMs: z.number(),
  rate: z.object({ achievedPerSecond: z.number(), keptUp: z.boolean(), bottleneck: z.string().nullable() }),
  ackMs: z.object({ p50: z.number(), p95: z.number(), p99: z.number(), max: z.number() }).nullable(),
  topics: z.record(z.string(), z.record(z.string(), counts)),
  refusals: z.array(
    z.object({
      status: z.number(),
      count: z.number(),
      error: z.string().optional(),
      text: z.string().optional(),
      hint: z.string().optional(),
    }),
  ),
  failures: z.array(z.object({ code: z.string(), count: z.number() })),
})
const printed = z.custom<SendResult>((value) => resultSchema.safeParse(value).success, 'No result of `send --json`.')

/** What `--json` printed. */
export function resultOf({ stdout }: Ended): SendResult {
  return printed.parse(JSON.parse(stdout))
}
