import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { DeadMessage } from '../observe/dead-letters.ts'
import type { ObservedRun, Observer, OperatorApi, RunEnd } from '../observe/observer.ts'

/** The members of an observer that only listen. */
const listening = ['received', 'refused', 'tested', 'ran', 'failed', 'settled', 'gap', 'forgotten'] as const
type Listening = (typeof listening)[number]
type Reported = { readonly [Name in Listening]: Parameters<NonNullable<Observer[Name]>> }
type Listener = { readonly [Name in Listening]?: (...report: Reported[Name]) => unknown }

const members: readonly (keyof Observer)[] = [...listening, 'attached', 'around', 'dead']

/** Whether every member that an observer has is a function. */
export const isObserver = (value: unknown): value is Observer =>
  isObject(value) && members.every((name) => ['undefined', 'function'].includes(typeof Reflect.get(value, name)))

/** The observers of one receiver. A member is `undefined` while nobody wants its reports. */
export class Observers {
  readonly tell: { readonly [Name in Listening]?: ((...report: Reported[Name]) => void) | undefined } = {}
  /** Returns a promise while one of them is not done with the dead letter. It never rejects. */
  dead: ((letter: DeadMessage) => Promise<void> | undefined) | undefined
  around: (<End extends RunEnd>(run: () => Promise<End>, what: ObservedRun) => Promise<End>) | undefined
  readonly #observers = new Set<Observer>()
  readonly #threw: (thrown: unknown) => void
  #receiver: Pick<OperatorApi, 'stats'> | undefined

  /** `threw` is called with what an observer threw. */
  constructor(threw: (thrown: unknown) => void) {
    this.#threw = threw
  }

  attach(receiver: Pick<OperatorApi, 'stats'>): void {
    this.#receiver = receiver
    for (const observer of this.#observers) void this.#call(() => observer.attached?.(receiver))
  }

  /** Returns a function that removes the observer. */
  add(observer: Observer): () => void {
    if (!isObserver(observer))
      throw new FleethookError(
        'option_invalid',
        '`receiver.observe` takes an observer: an object whose members are functions.',
      )
    // An observer that is added twice is two observers.
    const added = Object.create(observer) as Observer // oxlint-disable-line no-unsafe-type-assertion
    this.#observers.add(added)
    this.#combine()
    const receiver = this.#receiver
    if (receiver !== undefined) void this.#call(() => observer.attached?.(receiver))
    return () => {
      this.#observers.delete(added)
      this.#combine()
    }
  }

  #combine(): void {
    for (const name of listening) this.#listen(name)
    const told = [...this.#observers].filter(({ dead }) => dead !== undefined)
    this.dead = told.length === 0 ? undefined : (letter) => this.#tellDead(told, letter)
    const wrapping = [...this.#observers].filter(({ around }) => around !== undefined)
    this.around =
      wrapping.length === 0
        ? undefined
        : (run, what) => wrapping.reduceRight((inner, observer) => () => this.#wrap(observer, inner, what), run)()
  }

  #listen<Name extends Listening>(name: Name): void {
    const heard: Listener[] = [...this.#observers].filter((observer) => observer[name] !== undefined)
    const tell = (...report: Reported[Name]): void => {
      for (const observer of heard) void this.#call(() => observer[name]?.(...report))
    }
    Object.assign(this.tell, { [name]: heard.length === 0 ? undefined : tell })
  }

  /** The run happens once and at once, whatever the observer does. */
  #wrap<End>(observer: Observer, run: () => Promise<End & RunEnd>, what: ObservedRun): Promise<End & RunEnd> {
    let ended: Promise<End & RunEnd> | undefined
    const once = (): Promise<End & RunEnd> => (ended ??= run())
    void this.#call(() => observer.around?.(once, what))
    return once()
  }

  #tellDead(told: readonly Observer[], letter: DeadMessage): Promise<void> | undefined {
    const waits = told.flatMap((observer) => this.#call(() => observer.dead?.(letter)) ?? [])
    return waits.length === 0 ? undefined : Promise.all(waits).then(() => {})
  }

  /** Returns what it returned as a promise that never rejects: a rejection must not end the process. */
  #call(report: () => unknown): Promise<unknown> | undefined {
    try {
      const returned = report()
      return returned instanceof Promise ? returned.catch((thrown: unknown) => this.#threw(thrown)) : undefined
    } catch (thrown) {
      this.#threw(thrown)
      return undefined
    }
  }
}
