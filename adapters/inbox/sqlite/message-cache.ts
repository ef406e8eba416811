import { PassingMap } from '../../../src/base/passing-map.ts'
import { type Claim, isAbout } from '../../../src/inbox/inbox.ts'

export interface CachedMessage extends Claim {
  readonly seq: number
  deliveries: number
  isClaimed: boolean
}

/** The limits for waiting messages. A parsed event takes several times the memory of its text. */
const mostBytes = 2 * 1_048_576
const mostMessages = 2_048

/** Claimed messages, and the newest that wait, so that most are not read again. When full, the oldest half goes. */
export class MessageCache extends PassingMap<string, CachedMessage> {
  /** How many of these messages wait. */
  #messages = 0
  #bytes = 0

  /** The message waits, for the first time or again. */
  wait(message: CachedMessage): void {
    const { id } = message.message
    this.delete(id)
    message.isClaimed = false
    this.set(id, message)
    this.#messages += 1
    this.#bytes += message.message.bytes
    if (this.#bytes <= mostBytes && this.#messages <= mostMessages) return
    // In the order in which they began to wait.
    for (const { message: oldest, isClaimed } of this.values()) {
      if (this.#bytes <= mostBytes / 2 && this.#messages <= mostMessages / 2) break
      if (!isClaimed) this.delete(oldest.id)
    }
  }

  /** The message is handed out. It stays in memory until it is removed or waits again. */
  claim(message: CachedMessage): void {
    const { id } = message.message
    this.delete(id)
    message.isClaimed = true
    this.set(id, message)
  }

  override delete(id: string): boolean {
    const known = this.get(id)
    if (known?.isClaimed === false) {
      this.#messages -= 1
      this.#bytes -= known.message.bytes
    }
    return super.delete(id)
  }

  forget(vin: string): void {
    for (const { message } of this.values()) if (isAbout(message, vin)) this.delete(message.id)
  }
}
