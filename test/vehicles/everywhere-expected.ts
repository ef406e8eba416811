import type { FleetEvent } from 'fleethook'
import { normalize } from 'fleethook/normalize'
import { gapNow, type Line, lineOf, rules, vins } from './everywhere.ts'
import { happenings, looksAsReceiver } from './fold.ts'

/** The occurrences that the plain fold finds in the script, by vehicle. */
export function expected(of: readonly Line[]): Readonly<Record<string, readonly string[]>> {
  const events = new Map<string, FleetEvent[]>(vins.map((vin) => [vin, []]))
  for (const line of of) {
    const receivedAt = new Date('2026-02-01T00:00:00Z')
    if (!('gap' in line)) events.get(line.vin)?.push(...normalize([line.body], { receivedAt }))
    else for (const vin of line.gap === undefined ? vins : [line.gap]) events.get(vin)?.push(gapNow(vin))
  }
  return Object.fromEntries(
    [...events].map(([vin, its]) => {
      const found = rules.flatMap((rule, order) =>
        happenings(rule, its, looksAsReceiver).map(({ index, happened }) => {
          const event = its[index]
          if (event === undefined) throw new Error('The fold found an edge without a message.')
          return { index, order, line: lineOf({ edge: rule.name, event, change: happened }) }
        }),
      )
      return [vin, found.toSorted((a, b) => a.index - b.index || a.order - b.order).map(({ line }) => line)]
    }),
  )
}
