/** Answers that speak of the message: another server that has the same state for every message says something else. */
const aboutMessage: readonly number[] = [400, 409, 413, 415, 422]

/** So often a message of the only vehicle is refused, over about an hour, before an answer that speaks of it is believed. */
const triesAlone = 60

/** A vehicle whose message the server has refused. Its later messages wait behind that one. */
interface Refused {
  id: string
  /** When it was last refused, as a number of answers. */
  at: number
  /** How often the message was refused. */
  times: number
  /** It was refused again although others were taken since. */
  wasProved: boolean
  /** How often others were taken before it was refused, and again after it, with no new refusal between: the server refuses this one only. */
  proofs: number
  /** Others were taken before it was refused last, and nothing has come after it yet. */
  mayProve: boolean
  /** A message of this vehicle was given up, and none was taken since. */
  isGivenUp: boolean
  wasAlone: boolean
}

/**
 * Whether a server that refuses a message refuses this one, or all. A rotated secret answers 403 to everything, and a proxy without its server 404:
 * giving up what waits would lose a weekend.
 *
 * | the message was refused                                          | it is about   |
 * | ---------------------------------------------------------------- | ------------- |
 * | for the first time                                               | all: it waits |
 * | again, and nothing of another vehicle was taken since            | all: it waits |
 * | again, and another vehicle's was, by an answer of `aboutMessage` | this one      |
 * | by any other answer, and others twice before and after it         | this one      |
 * | `triesAlone` times by `aboutMessage`, with no other vehicle      | this one      |
 *
 * After a message was given up, later messages of its vehicle need no new proof, until one is taken: a server that does not know a vehicle must
 * not keep its messages for seconds each.
 */
export class RefusedVehicles {
  #answers = 0
  /** When a message was last taken, and when one was last refused of a vehicle of which none was. */
  #takenAt = 0
  #refusedAt = 0
  readonly #vehicles = new Map<string, Refused>()

  taken(vehicle: string): void {
    this.#takenAt = this.#answers += 1
    this.#vehicles.delete(vehicle)
    for (const refused of this.#vehicles.values()) {
      if (refused.mayProve) refused.proofs += 1
      refused.mayProve = false
    }
  }

  /** Returns whether the answer is about this message. */
  isOfMessage(vehicle: string, id: string, status: number): boolean {
    const at = (this.#answers += 1)
    const known = this.#vehicles.get(vehicle)
    if (known === undefined || (known.id !== id && !known.isGivenUp)) {
      // What was refused just before is no proof: the server refuses others, too.
      for (const refused of this.#vehicles.values()) refused.mayProve = false
      const mayProve = this.#takenAt > this.#refusedAt
      const none = { wasProved: false, proofs: 0, isGivenUp: false, wasAlone: false }
      this.#vehicles.set(vehicle, { id, at, times: 1, mayProve, ...none })
      this.#refusedAt = at
      return false
    }
    const speaksOfIt = aboutMessage.includes(status)
    const isSame = known.id === id
    const areOthersTaken = this.#takenAt > Math.max(isSame ? known.at : 0, this.#refusedAt)
    known.wasProved ||= areOthersTaken
    known.mayProve = areOthersTaken
    known.times = isSame ? known.times + 1 : 1
    known.id = id
    known.at = at
    const isAlone = speaksOfIt && !known.wasAlone && known.times >= triesAlone && this.#vehicles.size === 1
    if (isAlone) known.wasAlone = true
    else if (!areOthersTaken || !(speaksOfIt ? known.wasProved : known.proofs >= 2 || known.isGivenUp)) return false
    known.isGivenUp = true
    return true
  }
}
