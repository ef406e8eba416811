import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import { type FieldCatalogue, type LimitedType, type Limits, limitsOf, plainType } from './fields.ts'
import { builtInLimits } from './limits.generated.ts'

/** What physics allows for the values of a field. In the units of the field; a place is in meters. */
export interface Law {
  /** A counter never falls, unless it `restarts`. A level goes both ways. A place is a `Location`. */
  readonly kind: 'counter' | 'level' | 'place'
  /** The most that it changes in a minute. `Infinity`: any value can follow any other. */
  readonly perMinute: number
  /** The most that two values differ at once: rounding, delayed sending, the interval of a field. */
  readonly atOnce: number
  /** A counter may step back by this: rounding, or a correction of it. Left out: 0. */
  readonly back?: number
  /** It can never be less, or more. */
  readonly least?: number
  readonly most?: number
  /** A counter that begins again at 0, as the energy of a charge. */
  readonly restarts?: true
}

let laws: ReadonlyMap<string, Law> | undefined

/** Made when first needed, so that bundles without laws leave it out. */
function builtInLaw(field: string): Law | undefined {
  laws ??= new Map(
    builtInLimits.flatMap(([names, type]) => names.split(' ').map((name): [string, Law] => [name, lawIn(type)])),
  )
  return laws.get(field)
}

/**
 * The law of a field. `undefined`: any value can follow any other. A type in the business's own catalogue replaces the law if it has limits,
 * and keeps it if it has none.
 */
export function lawOf(field: string, ownFields: FieldCatalogue = {}): Law | undefined {
  const own = Object.hasOwn(ownFields, field) ? ownFields[field] : undefined
  if (typeof own === 'object') return 'enum' in own || isWithout(own) ? undefined : lawIn(own)
  const builtIn = builtInLaw(field)
  // A field of the same name that is something else.
  const isAnother = own !== undefined && own !== (builtIn?.kind === 'place' ? 'location' : 'number')
  return isAnother ? undefined : builtIn
}

/** Whether any number is possible. The place 0,0 never is. */
const isWithout = (type: LimitedType): boolean => 'number' in type && Object.keys(type.number).length === 0

function lawIn(type: LimitedType): Law {
  const {
    counter,
    restarts,
    perMinute = Infinity,
    atOnce = 0,
    ...others
  }: Limits = 'location' in type ? type.location : type.number
  const kind = 'location' in type ? 'place' : counter === true || restarts === true ? 'counter' : 'level'
  // Without a limit to its pace, any value can follow.
  const paced = { kind, perMinute, atOnce: perMinute === Infinity ? Infinity : atOnce } as const
  return restarts === true ? { ...paced, ...others, restarts } : { ...paced, ...others }
}

const flags: readonly string[] = ['counter', 'restarts']
const amounts: readonly string[] = ['perMinute', 'atOnce', 'back']
const bounds: readonly string[] = ['least', 'most']

/** Throws `option_invalid` for wrong limits of a field of your own. */
export function checkLimits(ownFields: FieldCatalogue): void {
  for (const [field, type] of Object.entries(ownFields)) {
    const limits: unknown = limitsOf(type)
    if (limits === undefined) continue
    const kind = plainType(type)
    const known = kind === 'location' ? ['perMinute', 'atOnce'] : [...flags, ...amounts, ...bounds]
    for (const [name, value] of Object.entries(isObject(limits) ? limits : {})) {
      if (value === undefined) continue
      if (!known.includes(name))
        throw wrong(`fields.${field}.${String(kind)}.${name} is no limit`, `Use ${known.join(', ')}.`)
      if (flags.includes(name)) {
        if (value !== true)
          throw wrong(`fields.${field}.number.${name} is ${String(value)}`, 'Write true, or leave it out.')
      } else if (!Number.isFinite(value) || (amounts.includes(name) && Number(value) < 0))
        throw wrong(
          `fields.${field}.${String(kind)}.${name} is ${String(value)}`,
          amounts.includes(name) ? 'It is a number from 0 up.' : 'It is a number.',
        )
    }
  }
}

const wrong = (problem: string, hint: string): FleethookError =>
  new FleethookError('option_invalid', `${problem}.`, { hint })
