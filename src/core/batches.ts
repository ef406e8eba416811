import type { Clock, Timer } from '../base/clock.ts'
import { contextHop } from '../hosting/execution-context.ts'
import type { Registered, Message, RequestWork } from './message.ts'
import type { Lifecycle } from './runner.ts'

interface BatchHost {
  readonly options: { readonly clock: Clock }
  readonly lifecycle: Lifecycle
  pump(): void
  /** Never rejects. */
  runBatch(batch: Batch): Promise<void>
}

/** Messages for one run of a handler. It holds them until it runs, and then they share its slot. */
export class Batch {
  readonly handler: Registered
  readonly owner: RequestWork | undefined
  readonly hop: (() => void) | undefined
  messages: Message[] = []
  timer: Timer | undefined
  readonly #lifecycle: Lifecycle
  #inside = 0

  constructor(handler: Registered, owner: RequestWork | undefined, core: BatchHost) {
    this.handler = handler
    this.owner = owner
    this.#lifecycle = core.lifecycle
    this.hop = owner && contextHop(() => void core.runBatch(this))
  }

  /** Begins the turns of the messages that it still holds, and returns them. */
  begin(): readonly Message[] {
    const messages = this.messages.filter(({ heldBy }) => heldBy === this)
    this.#inside = messages.length
    for (const message of messages) message.begin(this)
    if (messages.length === 0) this.#lifecycle.running -= 1
    return messages
  }

  has({ state, slot }: Message): boolean {
    return state === 'running' && slot === this
  }

  /** One of its messages needs its slot no more. */
  release(): void {
    this.#inside -= 1
    if (this.#inside === 0) this.#lifecycle.running -= 1
  }
}

export class Batches {
  /** Batches that are full, or have waited long enough. They run as soon as there is a slot. */
  due: Batch[] = []
  readonly #core: BatchHost
  /** One for each handler, or one for each of its requests where a runtime binds work to requests. */
  readonly #open = new Set<Batch>()

  constructor(core: BatchHost) {
    this.#core = core
  }

  /** Whether a message of this request may join the batch that holds a message, for this handler. */
  mayJoin({ heldBy }: Message, handler: Registered, request: RequestWork): boolean {
    if (!(heldBy instanceof Batch) || !this.#open.has(heldBy)) return false
    return heldBy.handler === handler && heldBy.owner === ownerOf(request)
  }

  /** Adds a message to the open batch, which holds it from now on. */
  add(message: Message, handler: Registered): void {
    const { size = 1, withinMs = 0 } = handler.gather ?? {}
    const owner = ownerOf(message.request)
    let batch: Batch | undefined
    for (const open of this.#open) if (open.handler === handler && open.owner === owner) batch = open
    if (batch === undefined) {
      const opened = new Batch(handler, owner, this.#core)
      opened.timer = this.#core.options.clock.after(withinMs, () => {
        this.#close(opened)
        this.#core.pump()
      })
      this.#open.add(opened)
      batch = opened
    }
    message.hold(batch)
    batch.messages.push(message)
    if (batch.messages.length >= size) this.#close(batch)
  }

  dropOver(): void {
    for (const batch of this.#open) {
      batch.messages = batch.messages.filter(({ heldBy }) => heldBy === batch)
      if (batch.messages.length === 0) this.#close(batch)
    }
  }

  flush(): void {
    for (const batch of this.#open) this.#close(batch)
  }

  stop(): void {
    for (const { timer } of this.#open) timer?.cancel()
    this.due = []
  }

  #close(batch: Batch): void {
    this.#open.delete(batch)
    batch.timer?.cancel()
    this.due.push(batch)
  }
}

const ownerOf = (request: RequestWork): RequestWork | undefined => (request.isBound ? request : undefined)
