// Times a subject with both classes of guesses, on any runtime, and prints the result as one line of JSON: `measure.ts
// <plain|comparison|guard> <long|usual> <number of the classes> <times>`.
import { argv } from 'node:process'
import { classes, type Guess, type Subject, subjects } from './trials.ts'
import { compareTimes } from './welch.ts'

const [, , subject = '', length, number, times] = argv
const isSubject = (name: string): name is keyof typeof subjects => name in subjects
const compared = classes[length === 'long' ? length : 'usual'][Number(number)]
if (!isSubject(subject) || compared === undefined)
  throw new Error(`There is nothing called ${argv.slice(2).join(' ')}.`)

/** Comparisons that are timed together, because one is shorter than reading a clock. */
const callsAtOnce = 8

const decoder = new TextDecoder()
const encoder = new TextEncoder()
let right = 0

/**
 * Creates everything that a comparison touches each time, in the same way for both classes, so that only their
 * characters differ. An object that stays at one address can be slower or faster because of that address.
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
    // In random order, so that other work of the machine affects both classes alike.
    if (turn % dice.length === 0) crypto.getRandomValues(dice)
    const which = (dice[turn % dice.length] ?? 0) & 1
    const [secret, offered] = bytes[which] ?? []
    if (secret && offered) taken[which === 0 ? 0 : 1].push(timeOnce(make, secret, offered))
  }
  return taken
}

const guesses = [compared.first, compared.second] as const
// Waits until the runtime's compilers are done.
timeBoth(subjects[subject], guesses, Math.min(3_000, Number(times)))
const comparison = compareTimes(...timeBoth(subjects[subject], guesses, Number(times)))
if (right > 0) throw new Error('A wrong guess was right.')
console.log(JSON.stringify(comparison))
