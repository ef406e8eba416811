import type { Clock, Timer } from '../base/clock.ts'
import { type Message, contextHop, type RequestWork, type Slot, type Handler } from './message.ts'

/** What batches need of their core. */
interface BatchHost {
  readonly clock: Clock
  /** A batch is full, or has waited long enough: it runs as soon as there is a slot. */
  due(batch: Batch): void
  /** Starts what is due. */
  pump(): void
  /** Runs it, in the I/O context of its request. */
  run(batch: Batch): void
  /** None of its messages needs its slot any more. */
  free(): void
}

/** Messages for one run of a handler. It holds them until it runs, and then they share its slot. */
export class Batch implements Slot {
  readonly handler: Handler
  /** The request to which its work is bound. */
  readonly owner: RequestWork | undefined
  readonly hop: (() => void) | undefined
  messages: Message[] = []
  timer: Timer | undefined
  readonly #host: BatchHost
  #inside = 0

  constructor(handler: Handler, owner: RequestWork | undefined, host: BatchHost) {
    this.handler = handler
    this.owner = owner
    this.#host = host
    this.hop = owner && contextHop(() => host.run(this))
  }

  /** Begins the turns of the messages that it still holds, and returns them. */
  begin(): readonly Message[] {
    const messages = this.messages.filter(({ heldBy }) => heldBy === this)
    this.#inside = messages.length
    for (const message of messages) message.begin(this)
    if (messages.length === 0) this.#host.free()
    return messages
  }

  /** Whether a message has its turn in this batch. */
  has({ state, slot }: Message): boolean {
    return state === 'running' && slot === this
  }

  release(): void {
    this.#inside -= 1
    if (this.#inside === 0) this.#host.free()
  }
}

/** Gathers messages for one batch handler. */
export class Gathering {
  readonly #handler: Handler
  readonly #host: BatchHost
  /** Batches that take more messages: one, or one for each request where a runtime binds work to requests. */
  readonly #open = new Set<Batch>()

  constructor(handler: Handler, host: BatchHost) {
    this.#handler = handler
    this.#host = host
  }

  /** Whether a message is in an open batch that a message of this request may join. */
  holds({ heldBy }: Message, request: RequestWork): boolean {
    return heldBy instanceof Batch && this.#open.has(heldBy) && heldBy.owner === ownerOf(request)
  }

  /** Adds a message to the open batch, which holds it from now on. */
  add(message: Message): void {
    const { size = 1, withinMs = 0 } = this.#handler.gather ?? {}
    const owner = ownerOf(message.request)
    let batch: Batch | undefined
    for (const open of this.#open) if (open.owner === owner) batch = open
    if (batch === undefined) {
      const opened = new Batch(this.#handler, owner, this.#host)
      opened.timer = this.#host.clock.after(withinMs, () => {
        this.#close(opened)
        this.#host.pump()
      })
      this.#open.add(opened)
      batch = opened
    }
    message.hold(batch)
    batch.messages.push(message)
    if (batch.messages.length >= size) this.#close(batch)
  }

  /** Messages in open batches are over. */
  dropOver(): void {
    for (const batch of this.#open) {
      batch.messages = batch.messages.filter(({ heldBy }) => heldBy === batch)
      if (batch.messages.length > 0) continue
      batch.timer?.cancel()
      this.#open.delete(batch)
    }
  }

  /** Lets no open batch wait any longer. */
  flush(): void {
    for (const batch of this.#open) this.#close(batch)
  }

  stop(): void {
    for (const { timer } of this.#open) timer?.cancel()
  }

  #close(batch: Batch): void {
    if (!this.#open.delete(batch)) return
    batch.timer?.cancel()
    this.#host.due(batch)
  }
}

const ownerOf = (request: RequestWork): RequestWork | undefined => (request.isBound ? request : undefined)
