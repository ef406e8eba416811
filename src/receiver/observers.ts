import type { ObservedRun, Observer, OperatorApi, RunEnd } from '../inbox/observer.ts'

/** The members of an observer that only listen. */
type Listeners = Omit<Required<Observer>, 'attached' | 'around'>
type Heard<Member extends keyof Listeners> = (...report: Parameters<Listeners[Member]>) => void

/**
 * The observers of one receiver: those of the option `observe`, and the functions given to `onError` and `onRefused`. A field
 * is `undefined` while nobody wants its reports.
 */
export class Observers {
  received: Heard<'received'> | undefined
  refused: Heard<'refused'> | undefined
  tested: Heard<'tested'> | undefined
  failed: Heard<'failed'> | undefined
  settled: Heard<'settled'> | undefined
  dead: Heard<'dead'> | undefined
  gap: Heard<'gap'> | undefined
  around: (<End extends RunEnd>(run: () => Promise<End>, what: ObservedRun) => Promise<End>) | undefined
  readonly #entries = new Set<{ readonly observer: Observer; readonly line: string }>()
  readonly #threw: (line: string, thrown: unknown) => void
  #receiver: Pick<OperatorApi, 'stats'> | undefined

  /** `threw` is called with what an observer threw, and with the line to log. */
  constructor(threw: (line: string, thrown: unknown) => void) {
    this.#threw = threw
  }

  /** The receiver exists. */
  attach(receiver: Pick<OperatorApi, 'stats'>): void {
    this.#receiver = receiver
    for (const { observer, line } of this.#entries) this.#call(line, () => observer.attached?.(receiver))
  }

  /** Returns a function that removes the observer. */
  add(observer: Observer, line: string = 'an observer failed'): () => void {
    const entry = { observer, line }
    this.#entries.add(entry)
    this.#combine()
    const receiver = this.#receiver
    if (receiver !== undefined) this.#call(line, () => observer.attached?.(receiver))
    return () => {
      this.#entries.delete(entry)
      this.#combine()
    }
  }

  #combine(): void {
    this.received = this.#each((observer) => observer.received)
    this.refused = this.#each((observer) => observer.refused)
    this.tested = this.#each((observer) => observer.tested)
    this.failed = this.#each((observer) => observer.failed)
    this.settled = this.#each((observer) => observer.settled)
    this.dead = this.#each((observer) => observer.dead)
    this.gap = this.#each((observer) => observer.gap)
    const wrapping = [...this.#entries].filter(({ observer }) => observer.around !== undefined)
    this.around =
      wrapping.length === 0
        ? undefined
        : (run, what) => wrapping.reduceRight((inner, entry) => () => this.#wrap(entry, inner, what), run)()
  }

  #each<Report extends unknown[]>(
    memberOf: (observer: Observer) => ((...report: Report) => unknown) | undefined,
  ): ((...report: Report) => void) | undefined {
    const heard = [...this.#entries].filter(({ observer }) => memberOf(observer) !== undefined)
    if (heard.length === 0) return undefined
    return (...report) => {
      for (const { observer, line } of heard) this.#call(line, () => memberOf(observer)?.apply(observer, report))
    }
  }

  /** The run happens once and at once, whatever the observer does. */
  #wrap<End>(
    { observer, line }: { readonly observer: Observer; readonly line: string },
    run: () => Promise<End & RunEnd>,
    what: ObservedRun,
  ): Promise<End & RunEnd> {
    let ended: Promise<End & RunEnd> | undefined
    const once = (): Promise<End & RunEnd> => (ended ??= run())
    this.#call(line, () => observer.around?.(once, what))
    return once()
  }

  #call(line: string, report: () => unknown): void {
    try {
      const returned = report()
      // Nothing waits for the promise, and its rejection must not end the process.
      if (returned instanceof Promise) returned.catch((thrown: unknown) => this.#threw(line, thrown))
    } catch (thrown) {
      this.#threw(line, thrown)
    }
  }
}
