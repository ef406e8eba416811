/** An error in the code of episodes: other text in one place. */
export interface Planted {
  readonly what: string
  readonly file: 'fold' | 'intervals' | 'measures' | 'memory' | 'telling'
  readonly code: string
  readonly instead: string
}

/** Errors of order, of state, of time and of values, of which the model must find nine in ten. */
export const planted: readonly Planted[] = [
  {
    what: 'values are taken in the order of their arrival',
    file: 'fold',
    code: 'samples.toSorted(([one], [other]) => one - other)) {',
    instead: 'samples) {',
  },
  {
    what: 'an interruption is not counted as paused',
    file: 'intervals',
    code: 'running.paused += at - running.end',
    instead: 'running.paused += 0',
  },
  {
    what: 'an episode that ends by silence ends when that is noticed, and not with its last message',
    file: 'intervals',
    code: 'end: last, cut: true',
    instead: 'end: at, cut: true',
  },
  {
    what: 'after a silence, the same value of the condition starts nothing',
    file: 'intervals',
    code: '{ was: false, isCut: true }',
    instead: '{ isCut: true }',
  },
  {
    what: 'an episode that lasts over a gap does not say so',
    file: 'intervals',
    code: 'if (running === undefined) return\n    if (timeline.at < overAt',
    instead: 'if (running?.end === undefined) return\n    if (timeline.at < overAt',
  },
  {
    what: 'the last value after the end is taken, and not the first',
    file: 'measures',
    code: 'notes.after === undefined && isOfEnd',
    instead: 'isOfEnd',
  },
  {
    what: 'a correction is told only when a start or an end changes',
    file: 'telling',
    code: 'if (told.hash === hash) {',
    instead: 'if (told.start === of.start && told.end === end) {',
  },
  {
    what: 'a minute of values is lost when old ones are folded',
    file: 'memory',
    code: 'const left = samples.filter(([at]) => at > foldTo)',
    instead: 'const left = samples.filter(([at]) => at > foldTo + 60_000)',
  },
  {
    what: 'a value that comes long after the end counts',
    file: 'measures',
    code: '  if (!isOf) return\n',
    instead: '',
  },
  {
    // Rare in the model: `test/when/episodes.test.ts` finds it.
    what: 'what did not happen after all is not revoked',
    file: 'telling',
    code: 'all: [...found, ...revoked]',
    instead: 'all: found',
  },
]
