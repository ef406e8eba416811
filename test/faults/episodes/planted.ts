/** An error in the code of episodes: other text in one place. */
export interface Planted {
  readonly what: string
  readonly file: 'episode' | 'measures'
  readonly code: string
  readonly instead: string
}

/** Errors of order, of state, of time and of values, of which the model must find nine in ten. */
export const planted: readonly Planted[] = [
  {
    what: 'values are taken in the order of their arrival',
    file: 'episode',
    code: 'of samples.toSorted((one, other) => one[0] - other[0])',
    instead: 'of samples',
  },
  {
    what: 'an interruption is not counted as paused',
    file: 'episode',
    code: 'running.paused += at - (running.end ?? at)',
    instead: 'running.paused += 0',
  },
  {
    what: 'silence counts from the last value of a field, and not from the last message',
    file: 'episode',
    code: 'at - Math.max(known.heard, known.listens) < this.#definition.silence',
    instead: 'at - known.at < this.#definition.silence',
  },
  {
    what: 'after a silence, the same value of the condition starts nothing',
    file: 'episode',
    code: '    known.was = false\n',
    instead: '',
  },
  {
    what: 'an episode that lasts over a gap does not say so',
    file: 'episode',
    code: 'if (running.end === undefined || at - running.end <= this.#definition.joins) running.gap = true',
    instead: 'if (running.end !== undefined && at - running.end <= this.#definition.joins) running.gap = true',
  },
  {
    what: 'the last value after the end is taken, and not the first',
    file: 'measures',
    code: 'notes.after ??= seen',
    instead: 'notes.after = seen',
  },
  {
    what: 'a late value of a measure corrects nothing that was told',
    file: 'episode',
    code: 'if (at < head.calm) return false',
    instead: 'if (at < 0) return false',
  },
  {
    what: 'what is not told yet is folded with what is old',
    file: 'episode',
    code: 'if (!isTold) foldTo = Math.min(foldTo, closed - 1)',
    instead: '',
  },
  {
    what: 'the energy that comes long after the end counts',
    file: 'measures',
    code: 'else notes.held ??= notes.sum ?? 0',
    instead: '',
  },
  {
    what: 'a clock that is fast is believed',
    file: 'episode',
    code: 'const sentMs = credibleMs(step.at.getTime(), arrivedMs)',
    instead: 'const sentMs = step.event.topic === "data" ? Date.parse(step.event.createdAt) : step.at.getTime()',
  },
]
