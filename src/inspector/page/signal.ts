const watchers: (() => void)[] = []
let isRunDue = false

function run(): void {
  isRunDue = false
  watchers.forEach((act) => act())
}

/** A value that the whole page shares. The page renders as a whole, so this is smaller than a library of signals. */
export class Signal<Value> {
  #value: Value

  constructor(value: Value) {
    this.#value = value
  }

  get value(): Value {
    return this.#value
  }

  /** The watchers run once, after the code that made this change and perhaps others. */
  set value(value: Value) {
    if (Object.is(value, this.#value)) return
    this.#value = value
    if (!isRunDue) queueMicrotask(run)
    isRunDue = true
  }
}

/** Runs `act` now, and after a change of any signal. */
export function onChange(act: () => void): void {
  watchers.push(act)
  act()
}

/** Runs `act` now, and when `look` returns another value. Before each run, calls the function that `act` returned last. */
export function watch<Value>(look: () => Value, act: (value: Value) => (() => void) | void): void {
  let seen = look()
  let end = act(seen)
  onChange(() => {
    const value = look()
    if (value === seen) return
    seen = value
    end?.()
    end = act(value)
  })
}
