import { BelievedTime } from '../base/believed-time.ts'
import { backgroundTimer, type Clock, type Timer } from '../base/clock.ts'
import { firstPage, pagesOf } from '../base/pages.ts'
import type { StoredVehicle, VehicleStore } from '../inbox/vehicle-store.ts'
import type { MissingField } from '../observe/stats.ts'
import type { EdgeIndex } from './edge-index.ts'
import { FieldCensus } from './missing-fields.ts'
import type { VehicleState } from './state.ts'

/** When the fields of rules are looked for first, and how often. Each look reads all states. */
const firstLookMs = 3_600_000
const lookEachMs = 86_400_000

interface RoundsOptions {
  readonly store: VehicleStore
  readonly clock: Clock
  readonly edges: EdgeIndex
  readonly read: (vin: string, stored: StoredVehicle) => VehicleState
  /** Called once a day with the fields of rules that do not come. `undefined`: nobody looks. */
  readonly fieldsMissing: ((missing: readonly MissingField[]) => void) | undefined
  /** Forgets silent vehicles while the process runs. */
  readonly forgets: { readonly afterMs: number; readonly everyMs: number; failed(error: unknown): void } | undefined
}

/** What is done with all states now and then: forget silent vehicles, and look for fields of rules that do not come. */
export class Rounds {
  readonly #options: RoundsOptions
  readonly #startedMs: number
  readonly #believed: BelievedTime
  #forgetting: Timer | undefined
  #looking: Timer | undefined
  #isStopped = false

  constructor(options: RoundsOptions) {
    this.#options = options
    this.#startedMs = options.clock.now()
    this.#believed = new BelievedTime(options.clock)
  }

  start(): void {
    this.#forgetLater()
    if (this.#options.edges.size > 0) this.#lookLater(firstLookMs)
  }

  stop(): void {
    this.#isStopped = true
    this.#forgetting?.cancel()
    this.#looking?.cancel()
  }

  async missingFields(): Promise<readonly MissingField[]> {
    const { edges, read, store } = this.#options
    const census = new FieldCensus(edges.all, this.#believed.now(), this.#startedMs)
    const find = (last: StoredVehicle | undefined, limit: number): Promise<readonly StoredVehicle[]> =>
      store.list({ after: last?.vin, limit })
    for await (const page of pagesOf<StoredVehicle>(find, firstPage))
      census.add(page.filter(({ vin }) => vin !== '').map((each) => read(each.vin, each)))
    return census.missing()
  }

  #forgetLater(): void {
    const { clock, forgets, store } = this.#options
    if (forgets === undefined || this.#isStopped) return
    this.#forgetting = backgroundTimer(clock, forgets.everyMs, () => {
      store.forgetUnseen(this.#believed.now() - forgets.afterMs).catch(forgets.failed)
      this.#forgetLater()
    })
  }

  /** Looks for fields of rules that do not come. */
  #lookLater(afterMs: number): void {
    const { clock, fieldsMissing: found } = this.#options
    if (found === undefined || this.#isStopped) return
    this.#looking = backgroundTimer(clock, afterMs, () => {
      // The inbox has said so when it cannot list its states.
      void this.missingFields().then(found, () => {})
      this.#lookLater(lookEachMs)
    })
  }
}
