import { type Edge, is, starts } from 'fleethook/when'

const minuteMs = 60_000
const { timing } = starts(is('Gear', 'P')).after({ minutes: 1 })
if (timing === undefined) throw new Error('a rule about time has a clockwork')

/** Happens one minute and two minutes after each change of the gear, so one late message can tell both. */
export const twice: Edge = {
  name: 'twice',
  fields: ['Gear'],
  reads: ['Gear'],
  topics: [],
  timing,
  detect({ event, at, timer }) {
    if (event.topic !== 'timer') return { timer: { due: at.getTime() + minuteMs, since: at.getTime() } }
    if (timer?.due == null) return undefined
    const happened = { at: new Date(timer.due), acrossGap: false }
    return timer.due > timer.since + minuteMs
      ? { happened }
      : { happened, timer: { due: timer.due + minuteMs, since: timer.since } }
  },
  where: () => twice,
}

/** Messages of a vehicle: the second one is ten minutes younger. */
export const bodiesOf = (vin: string): readonly object[] =>
  [20, 10].map((minutes) => ({
    vin,
    createdAt: new Date(Date.now() - minutes * minuteMs).toISOString(),
    data: { Gear: 'D', Odometer: minutes },
  }))
