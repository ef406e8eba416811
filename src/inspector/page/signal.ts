const watchers: (() => void)[] = []
let isRunDue = false

function run(): void {
  isRunDue = false
  watchers.forEach((act) => act())
}

/**
 * A value that the whole page shares. The page is drawn as a whole, so nothing records which part of it reads which
 * value. That makes this much smaller than a library of signals.
 */
export class Signal<Value> {
  #value: Value

  constructor(value: Value) {
    this.#value = value
  }

  get value(): Value {
    return this.#value
  }

  /** A change runs the watchers once, after the code that made this change and maybe others. */
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

/** Runs `act` now, and when `look` returns another value. What `act` returned the last time is called first. */
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
