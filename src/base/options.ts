import { longestMs } from './clock.ts'
import { FleethookError } from './errors.ts'

export interface Rule {
  /** Completes the sentence "Option `x` must …". */
  readonly must: string
  readonly accepts: (value: unknown) => boolean
  readonly hint?: string | undefined
  readonly isRequired?: boolean
  /** The value can hold a secret, so no error shows it. */
  readonly isSecret?: boolean
}

/** A rule for each option. An object of rules checks an object of options. */
export type Rules<Options> = { readonly [Name in keyof Options]-?: Rule | NestedRules }
interface NestedRules {
  readonly [name: string]: Rule | NestedRules
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null

export function wholeNumber(least: number, most: number = Number.MAX_SAFE_INTEGER): Rule {
  const upTo = most === Number.MAX_SAFE_INTEGER ? 'up' : `to ${most}`
  return {
    must: `must be a whole number from ${least} ${upTo}`,
    accepts: (value) => Number.isSafeInteger(value) && Number(value) >= least && Number(value) <= most,
  }
}

/** A whole number of milliseconds that a timer can wait: at most 24 days. How long something is kept can be longer, so it is a {@link wholeNumber}. */
export function milliseconds(least: number): Rule {
  return { ...wholeNumber(least, longestMs), must: `must be whole milliseconds from ${least} to ${longestMs}` }
}

export function numberBetween(least: number, most: number): Rule {
  return {
    must: `must be a number from ${least} to ${most}`,
    accepts: (value) => typeof value === 'number' && value >= least && value <= most,
  }
}

export function oneOf(...values: readonly unknown[]): Rule {
  return { must: `must be ${values.map(shown).join(' or ')}`, accepts: (value) => values.includes(value) }
}

export function withMethods(...names: readonly string[]): Rule {
  return {
    must: `must be an object with the methods ${names.join(', ')}`,
    accepts: (value) => isObject(value) && names.every((name) => typeof value[name] === 'function'),
  }
}

export const trueOrFalse: Rule = oneOf(true, false)
export const aFunction: Rule = { must: 'must be a function', accepts: (value) => typeof value === 'function' }
export const anything: Rule = { must: 'can be anything', accepts: () => true }

export function required(rule: Rule, hint?: string): Rule {
  return { ...rule, isRequired: true, hint: hint ?? rule.hint }
}

/**
 * Checks the options of `owner`, for instance `createReceiver`. An option written as `undefined` counts as left out.
 *
 * Throws `option_invalid` with the name of the option, what it must be, the value that was given (unless the value can be a
 * secret), and a hint.
 */
export function checkOptions<Options extends object>(
  owner: string,
  given: unknown,
  rules: Rules<Options>,
): asserts given is Options {
  if (!isObject(given) || Array.isArray(given)) {
    // The error does not show the value. A caller who passes something else often passes the secret.
    throw new FleethookError('option_invalid', `${owner} takes an object of options and was given ${kindOf(given)}.`, {
      hint: `Pass an object, for instance ${owner}({ ${Object.keys(rules)[0]} }). The options are ${Object.keys(rules).join(', ')}.`,
    })
  }
  checkAll(owner, given, rules, '')
}

function checkAll(owner: string, given: Record<string, unknown>, rules: NestedRules, prefix: string): void {
  for (const name of Object.keys(given)) {
    if (Object.hasOwn(rules, name)) continue
    throw new FleethookError('option_invalid', `${owner} has no option \`${prefix}${name}\`.`, {
      hint: `The options here are ${Object.keys(rules).join(', ')}.`,
    })
  }
  for (const [name, rule] of Object.entries(rules)) {
    const value = given[name]
    if (isRule(rule)) checkOption(owner, prefix + name, value, rule)
    else if (value !== undefined) {
      if (!isObject(value) || Array.isArray(value))
        throw invalidOption(owner, prefix + name, value, {
          must: `must be an object of ${Object.keys(rule).join(', ')}`,
          // Somebody who leaves out the object can have passed the secret itself.
          isSecret: Object.values(rule).some((inner) => inner['isSecret'] === true),
        })
      checkAll(owner, value, rule, `${prefix}${name}.`)
    }
  }
}

/** Checks one option that is not part of an object. Throws `option_invalid`. */
export function checkOption(owner: string, name: string, value: unknown, rule: Rule): void {
  if (value === undefined ? rule.isRequired === true : !rule.accepts(value))
    throw invalidOption(owner, name, value, rule)
}

function invalidOption(
  owner: string,
  name: string,
  value: unknown,
  { must, hint, isSecret }: Omit<Rule, 'accepts'>,
): FleethookError {
  const given = value === undefined ? 'is missing' : isSecret ? undefined : `was given ${shown(value)}`
  return new FleethookError(
    'option_invalid',
    `Option \`${name}\` of ${owner} ${must}${given === undefined ? '' : ` and ${given}`}.`,
    { hint },
  )
}

/** The given options without `undefined` values, so that they can be spread over defaults. */
export function defined<Options extends object>(options: Options | undefined): Defined<Options> {
  return Object.fromEntries(
    Object.entries(options ?? {}).filter(([, value]) => value !== undefined),
  ) as Defined<Options>
}
type Defined<Options> = { readonly [Name in keyof Options]?: Exclude<Options[Name], undefined> }

const isRule = (rule: Rule | NestedRules): rule is Rule => typeof rule['accepts'] === 'function'

function shown(value: unknown): string {
  if (typeof value === 'string') return `'${value.slice(0, 80)}'`
  return isObject(value) || typeof value === 'function' ? kindOf(value) : String(value)
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  return Array.isArray(value) ? 'a list' : `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`
}
