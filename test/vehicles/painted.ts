/** One fact, moment by moment: what was said without an end, and over it what was said with one. */
export class Painted<Value> {
  readonly #steps: { readonly from: number; readonly value: Value | null }[] = []
  readonly #spans: ({ readonly value: Value | null; readonly of: number } | undefined)[] = []
  #said = 0

  say(value: Value | null, from: number, until?: number): void {
    this.#said += 1
    if (until === undefined) {
      const known = this.#steps.findIndex((step) => step.from === from)
      if (known >= 0) this.#steps.splice(known, 1)
      this.#steps.push({ from, value })
      const running = this.#spans[from]?.of
      for (let at = from; running !== undefined && this.#spans[at]?.of === running; at += 1) this.#spans[at] = undefined
      return
    }
    // What is left behind it is a span of its own.
    const behind = this.#spans[until]?.of
    if (behind !== undefined && behind === this.#spans[until - 1]?.of)
      for (let at = until; this.#spans[at]?.of === behind; at += 1) {
        const span = this.#spans[at]
        if (span !== undefined) this.#spans[at] = { value: span.value, of: -this.#said }
      }
    for (let at = from; at < until; at += 1) this.#spans[at] = { value, of: this.#said }
  }

  at(time: number): Value | undefined {
    const span = this.#spans[time]
    if (span !== undefined) return span.value ?? undefined
    const steps = this.#steps.filter(({ from }) => from <= time).toSorted((a, b) => a.from - b.from)
    return steps.at(-1)?.value ?? undefined
  }
}
