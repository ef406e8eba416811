import { comparable } from '../../../src/http/secret.ts'
import { createSecretCheck } from '../../../src/http/secret.ts'

/** A secret, and a guess of it. */
export interface Guess {
  readonly secret: string
  readonly offered: string
}

/** Two classes of wrong guesses that must take the same time. */
export interface Classes {
  readonly name: string
  readonly first: Guess
  readonly second: Guess
}

/** Text of visible ASCII, the same for the same seed. */
function textOf(length: number, seed: number): string {
  let state = seed
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return String.fromCharCode(0x30 + ((state >>> 16) % 0x4a))
  }).join('')
}

const wrongAt = (text: string, at: number): string => `${text.slice(0, at)}!${text.slice(at + 1)}`

function classesOf(length: number): readonly Classes[] {
  const secret = textOf(length, 1)
  return [
    {
      name: `the first or the last of ${length} characters is wrong`,
      first: { secret, offered: wrongAt(secret, 0) },
      second: { secret, offered: wrongAt(secret, length - 1) },
    },
    {
      // Some engines compare texts from the end. So half of this is right from either side.
      name: `all of ${length} characters are wrong, or only the one in the middle`,
      first: { secret, offered: textOf(length, 2) },
      second: { secret, offered: wrongAt(secret, length / 2) },
    },
    {
      // An attacker knows the length of the guess, so the length of the secret differs. Both secrets take up the same
      // memory.
      name: `the secret has ${length + 2} characters, or ${length} as what is offered`,
      first: { secret: textOf(length + 2, 1), offered: wrongAt(secret, length - 1) },
      second: { secret, offered: wrongAt(secret, length - 1) },
    },
  ]
}

/** By the length of the secrets: close to the limit, which shows an early exit best, and the usual length. */
export const classes: Readonly<Record<'long' | 'usual', readonly Classes[]>> = {
  long: classesOf(1020),
  usual: classesOf(42),
}

/** Makes what is timed, for one secret. */
export type Subject = (secret: string) => (offered: string) => boolean

const silent = { debug() {}, info() {}, warn() {}, error() {} }

export const subjects: Readonly<Record<'plain' | 'comparison' | 'guard', Subject>> = {
  /** The control: what the test has to find. */
  plain: (secret) => (offered) => offered === secret,
  /** The comparison of `src/http/secret.ts`. */
  comparison: (secret) => comparable(secret).equals,
  /** Everything that happens with the header of a request, including the parts of the refusal. */
  guard(secret) {
    const check = createSecretCheck(secret, silent)
    return (offered) => !('error' in check(offered, 'root', undefined))
  },
}
