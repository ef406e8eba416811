/** When messages are sent: at a rate, with a limit of messages in flight, and one after another in a lane. */
interface PaceOptions<Message> {
  readonly messages: Iterator<Message>
  readonly count: number
  readonly ratePerSecond: number
  readonly concurrency: number
  readonly laneOf: (message: Message) => string
  /** Never rejects. */
  readonly send: (message: Message) => Promise<void>
}

/** What delays messages when the rate is not reached. */
export type Bottleneck = 'concurrency' | 'vins' | 'machine'

export interface Pacing {
  /** From the first planned time to the last answer. */
  readonly elapsedMs: number
  readonly achievedPerSecond: number
  /** The longest delay of a message after its planned time. */
  readonly latestMs: number
  readonly keptUp: boolean
  readonly bottleneck: Bottleneck
}

export interface Pace {
  /** Resolves when the last message is answered. */
  readonly done: Promise<void>
  stop(): void
  pacing(): Pacing
}

/**
 * Starts sending at a rate that does not depend on answers: a slow receiver gets as many messages as a fast one, as far as
 * `concurrency` and the order in each lane allow. Messages that leave late are counted.
 */
export function pace<Message>(options: PaceOptions<Message>): Pace {
  const { messages, count, ratePerSecond, concurrency, laneOf, send } = options
  const intervalMs = 1_000 / ratePerSecond
  const startedAt = performance.now()
  // A lane exists while one of its messages is in flight or ready. Its list holds the messages after that one.
  const lanes = new Map<string, Due<Message>[]>()
  const ready: Due<Message>[] = []
  const held = { concurrency: 0, vins: 0, machine: 0 }
  let taken = 0
  let left = 0
  let waiting = 0
  let inFlight = 0
  let latestMs = 0
  let lastLeftAt = startedAt
  let endedAt: number | undefined
  let stopped = false
  let timer: NodeJS.Timeout | undefined
  let finish = (): void => {}
  const done = new Promise<void>((resolve) => {
    finish = resolve
  })

  const nextDueAt = (): number => startedAt + taken * intervalMs
  const ended = (): boolean => stopped || taken >= count
  // The fleet makes messages only when they can be sent soon, so that they do not pile up here.
  const hasRoom = (): boolean => waiting < 4 * concurrency
  const mayGo = (): boolean => inFlight < concurrency && ready.length > 0

  const pump = (): void => {
    clearTimeout(timer)
    const now = performance.now()
    while (!ended() && hasRoom() && nextDueAt() <= now) take()
    while (mayGo()) void go(ready.shift())
    if (ended() && inFlight === 0 && waiting === 0) {
      endedAt ??= performance.now()
      finish()
    } else if (!ended() && hasRoom()) {
      timer = setTimeout(pump, Math.max(1, nextDueAt() - performance.now()))
    }
  }

  const take = (): void => {
    const next = messages.next()
    if (next.done) stopped = true
    else queue({ message: next.value, dueAt: nextDueAt() })
    taken++
  }

  const queue = (due: Due<Message>): void => {
    waiting++
    const lane = lanes.get(laneOf(due.message))
    if (lane) {
      lane.push(due)
      return
    }
    lanes.set(laneOf(due.message), [])
    ready.push(due)
  }

  const go = async (due: Due<Message> | undefined): Promise<void> => {
    if (!due) return
    waiting--
    inFlight++
    left++
    lastLeftAt = performance.now()
    const lateMs = lastLeftAt - due.dueAt
    latestMs = Math.max(latestMs, lateMs)
    if (lateMs > 50) held[inFlight >= concurrency ? 'concurrency' : waiting > ready.length ? 'vins' : 'machine']++
    await send(due.message)
    inFlight--
    const lane = lanes.get(laneOf(due.message))
    const next = lane?.shift()
    if (next) ready.push(next)
    else lanes.delete(laneOf(due.message))
    pump()
  }

  pump()

  return {
    done,
    stop() {
      stopped = true
      for (const lane of lanes.values()) lane.length = 0
      ready.length = 0
      waiting = 0
      pump()
    },
    pacing() {
      const spanMs = Math.max(lastLeftAt - startedAt, left > 0 ? (left - 1) * intervalMs : 0) + intervalMs
      const achievedPerSecond = left === 0 ? 0 : (1_000 * left) / spanMs
      const keptUp = achievedPerSecond >= 0.97 * ratePerSecond && latestMs < 1_000
      const bottleneck =
        held.machine > held.vins && held.machine > held.concurrency
          ? 'machine'
          : held.vins > held.concurrency
            ? 'vins'
            : 'concurrency'
      return { elapsedMs: (endedAt ?? performance.now()) - startedAt, achievedPerSecond, latestMs, keptUp, bottleneck }
    },
  }
}

interface Due<Message> {
  readonly message: Message
  readonly dueAt: number
}
