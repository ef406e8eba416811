// Times a subject with both classes of guesses, on whatever runtime runs it, and prints what came out as one line of JSON:
// `measure.ts <plain|comparison|guard> <long|usual> <number of the classes> <times>`.
import { argv } from 'node:process'
import { classes, type Guess, type Subject, subjects } from './trials.ts'
import { compareTimes } from './welch.ts'

const [, , subject = '', length, number, times] = argv
const isSubject = (name: string): name is keyof typeof subjects => name in subjects
const compared = classes[length === 'long' ? length : 'usual'][Number(number)]
if (!isSubject(subject) || compared === undefined)
  throw new Error(`There is nothing called ${argv.slice(2).join(' ')}.`)

/** Comparisons that are timed together, since one is shorter than what a clock takes. */
const callsAtOnce = 8

const decoder = new TextDecoder()
const encoder = new TextEncoder()
let right = 0

/**
 * All that a comparison touches is made anew each time, in the same way for both classes, so that they differ in nothing
 * but their characters: what stays at one address for long is slower or quicker for where it lies.
 */
function timeOnce(make: Subject, secret: Uint8Array, offered: Uint8Array): number {
  const equals = make(decoder.decode(secret))
  const texts = Array.from({ length: callsAtOnce }, () => decoder.decode(offered))
  const startedAt = performance.now()
  for (const text of texts) if (equals(text)) right += 1
  return ((performance.now() - startedAt) * 1e6) / callsAtOnce
}

function timeBoth(make: Subject, guesses: readonly [Guess, Guess], times: number): [number[], number[]] {
  const bytes = guesses.map(({ secret, offered }) => [encoder.encode(secret), encoder.encode(offered)] as const)
  const taken: [number[], number[]] = [[], []]
  const dice = new Uint8Array(1024)
  for (let turn = 0; turn < times; turn++) {
    // In random order: whatever else the machine does meets both classes alike.
    if (turn % dice.length === 0) crypto.getRandomValues(dice)
    const which = (dice[turn % dice.length] ?? 0) & 1
    const [secret, offered] = bytes[which] ?? []
    if (secret && offered) taken[which === 0 ? 0 : 1].push(timeOnce(make, secret, offered))
  }
  return taken
}

const guesses = [compared.first, compared.second] as const
// Until the compilers of the runtime have done what they do.
timeBoth(subjects[subject], guesses, Math.min(3_000, Number(times)))
const comparison = compareTimes(...timeBoth(subjects[subject], guesses, Number(times)))
if (right > 0) throw new Error('A wrong guess was right.')
console.log(JSON.stringify(comparison))
