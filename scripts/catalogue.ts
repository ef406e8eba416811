/**
 * Writes the field catalogue.
 *
 *     node scripts/catalogue.ts                          # the built-in one, from scripts/fields.json
 *     node scripts/catalogue.ts fields.json fields.ts    # a module for `createReceiver({ fields })`, from a business's own list
 *
 * The input is an object of field name to `{ "type": … }` (or to the type itself), at the root or under `fields`. A type
 * is one of boolean, string, float, integer, number, enum, location, timestamp, doors, time, tires. The constants of an
 * enum are a list beside the type (`enum`, `values` or `options`), or the name of a list under `enums`. The `limits`
 * of a number or a location say what physics allows: see `Limits` in src/events/fields.ts.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { format, resolveConfig } from 'prettier'

type Type = string | { readonly prefix: string; readonly constants: readonly string[] }

const own = fileURLToPath(new URL('fields.json', import.meta.url))
const builtIn = fileURLToPath(new URL('../src/events/catalogue.generated.ts', import.meta.url))
const wrappers = fileURLToPath(new URL('../src/wire/wrappers.generated.ts', import.meta.url))
const limits = fileURLToPath(new URL('../src/events/limits.generated.ts', import.meta.url))

/** Which classes of JSON value a source may name without contradicting the type. The text spellings are known ones. */
const agreeing: Readonly<Record<string, readonly string[]>> = {
  string: ['text'],
  enum: ['text'],
  number: ['number'],
  boolean: ['boolean'],
  location: ['object', 'text'],
  doors: ['object', 'text'],
  tires: ['object', 'text'],
  time: ['object', 'text'],
  timestamp: ['number', 'text'],
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
}

function strings(value: unknown): readonly string[] | undefined {
  return Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === 'string') ? value : undefined
}

function classOf(documented: string): string {
  const word = documented.toLowerCase()
  if (word.endsWith('enum') || word === 'string') return 'text'
  if (['float', 'integer', 'real', 'number', 'timestamp'].includes(word)) return 'number'
  return word === 'boolean' ? 'boolean' : 'object'
}

function enumType(constants: readonly string[]): Type {
  const unknown = constants.find((constant) => constant.endsWith('Unknown'))
  const prefix = unknown?.slice(0, -'Unknown'.length) ?? ''
  const fits = constants.every((constant) => constant.startsWith(prefix))
  return fits
    ? { prefix, constants: constants.map((constant) => constant.slice(prefix.length)) }
    : { prefix: '', constants }
}

function typeOf(name: string, entry: unknown, enums: Readonly<Record<string, unknown>>): Type | undefined {
  const field = typeof entry === 'string' ? { type: entry } : record(entry)
  const stated = field['type']
  if (typeof stated !== 'string') throw new Error(`The field ${name} has no type. Give it one: { "type": "float" }.`)
  const type = ['float', 'integer', 'real'].includes(stated) ? 'number' : stated
  const agreed = agreeing[type]
  if (agreed === undefined) {
    throw new Error(
      `The field ${name} has the type ${stated}. Use one of ${Object.keys(agreeing).join(', ')}, float, integer.`,
    )
  }
  // The service's SSE schema has no vote: where only it differs, the maker's wrapper and both lists of fields agree.
  const documented = [field['makerDocType'], field['serviceFieldsJsonType']]
  if (documented.some((source) => typeof source === 'string' && !agreed.includes(classOf(source)))) return 'any'
  if (type !== 'enum') return type
  const listed = field['enum'] ?? field['values'] ?? field['options']
  const constants = strings(typeof listed === 'string' ? enums[listed] : listed)
  // A list that names no constants says less than the built-in catalogue does: leave the field to that.
  return constants === undefined ? undefined : enumType(constants)
}

/** The fields of the input, at its root or under `fields`. */
function fieldsOf(input: unknown): readonly (readonly [name: string, entry: unknown])[] {
  const root = record(input)
  const nested = record(root['fields'])
  return Object.entries(Object.keys(nested).length > 0 && !('type' in nested) ? nested : root)
}

/** Field name to type, in the order of the input. */
export function readFields(input: unknown): ReadonlyMap<string, Type> {
  const enums = record(record(input)['enums'])
  const types = new Map<string, Type>()
  for (const [name, entry] of fieldsOf(input)) {
    const type = typeOf(name, entry, enums)
    if (type !== undefined) types.set(name, type)
  }
  return types
}

/** What physics allows for the values of a field, for the fields for which it is known. */
function readLimits(input: unknown): ReadonlyMap<string, Readonly<Record<string, unknown>>> {
  return new Map(
    fieldsOf(input).flatMap(([name, entry]) => {
      const { limits } = record(entry)
      return limits === undefined ? [] : [[name, record(limits)]]
    }),
  )
}

function limitedType(type: Type | undefined, limits: Readonly<Record<string, unknown>>): string {
  if (type !== 'number' && type !== 'location') throw new Error('Only a number or a location has limits.')
  return `{ ${type}: ${JSON.stringify(limits)} }`
}

const quote = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`

/** The unit of each field for which it is known. */
function readUnits(input: unknown): ReadonlyMap<string, string> {
  const entries = Object.entries(record(record(input)['fields'])).map(([name, entry]) => [name, record(entry)['unit']])
  return new Map(entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'))
}

/** The module of the built-in catalogue: compact at run time, literal in its type. */
export function builtInModule(types: ReadonlyMap<string, Type>, units: ReadonlyMap<string, string>): string {
  const lines = new Map<string, string[]>()
  for (const [name, type] of types) {
    const head = typeof type === 'string' ? type : `${type.prefix}=${type.constants.join(' ')}`
    lines.set(head, [...(lines.get(head) ?? []), name])
  }
  const aliases = new Map<string, string>()
  for (const type of types.values()) {
    if (typeof type === 'string') continue
    aliases.set(
      type.prefix,
      `interface ${type.prefix} { readonly enum: readonly (${type.constants.map(quote).join(' | ')})[]; readonly prefix: ${quote(type.prefix)} }`,
    )
  }
  const shape = [...types].map(([name, type]) => {
    const unit = units.get(name)
    const doc = unit === undefined ? '' : `/** In ${unit}. */\n`
    return `${doc}readonly ${name}: ${typeof type === 'string' ? quote(type) : type.prefix}`
  })
  const text = [...lines].map(([head, names]) => `${head}:${names.join(' ')}`).join('\\n')
  return `// Generated by scripts/catalogue.ts from scripts/fields.json: run \`npm run generate -- catalogue\`, do not edit.

${[...aliases.values()].join('\n\n')}

/** Field name to type, as the public sources agree on it (specification: "Streaming config", the list of field names). */
export interface BuiltInCatalogue {
${shape.join('\n')}
}

/** Lines of \`type:Name Name …\`. The type of an enum is \`Prefix=Constant Constant …\`. */
export const catalogueText: string = '${text}'
`
}

/** The module of the wrappers in which the maker sends each field, for `encode`. */
export function wrappersModule(input: unknown): string {
  const lines = new Map<string, string[]>()
  for (const [name, entry] of Object.entries(record(record(input)['fields']))) {
    const wrapper = strings(record(entry)['wrappers'])?.[0]
    if (wrapper !== undefined) lines.set(wrapper, [...(lines.get(wrapper) ?? []), name])
  }
  const text = [...lines].map(([wrapper, names]) => `${wrapper}:${names.join(' ')}`).join('\\n')
  return `// Generated by scripts/catalogue.ts from scripts/fields.json: run \`npm run generate -- catalogue\`, do not edit.

/** Lines of \`wrapper:Name Name …\`: in which wrapper the maker sends a field. */
export const wrapperText: string = ${quote(text).replaceAll('\\\\n', '\\n')}
`
}

/** The module of the limits in the built-in catalogue. Only who keeps the state of vehicles loads it. */
export function limitsModule(input: unknown): string {
  const types = readFields(input)
  const groups = new Map<string, string[]>()
  for (const [name, limits] of readLimits(input)) {
    const type = limitedType(types.get(name), limits)
    groups.set(type, [...(groups.get(type) ?? []), name])
  }
  const entries = [...groups].map(([type, names]) => `[${quote(names.join(' '))}, ${type}]`)
  return `// Generated by scripts/catalogue.ts from scripts/fields.json: run \`npm run generate -- catalogue\`, do not edit.
import type { LimitedType } from './fields.ts'

/** Names of fields with a blank between them, and what physics allows for each of them. */
export const builtInLimits: readonly (readonly [names: string, type: LimitedType])[] = [${entries.join(',\n')}]
`
}

/** A module with a business's own catalogue, as it would be written by hand. */
export function ownModule(
  types: ReadonlyMap<string, Type>,
  limited: ReadonlyMap<string, Readonly<Record<string, unknown>>>,
): string {
  const entries = [...types].map(([name, type]) => {
    const limits = limited.get(name)
    if (limits !== undefined) return `${quote(name)}: ${limitedType(type, limits)}`
    if (typeof type === 'string') return `${quote(name)}: ${quote(type)}`
    return `${quote(name)}: { enum: [${type.constants.map(quote).join(', ')}], prefix: ${quote(type.prefix)} }`
  })
  return `// Generated by fleethook's scripts/catalogue.ts from the list of fields that the service publishes.
import type { FieldCatalogue } from 'fleethook'

export const fields = { ${entries.join(',\n')} } as const satisfies FieldCatalogue
`
}

const textOf: Readonly<Record<'built-in' | 'wrappers' | 'limits' | 'own', (input: unknown) => string>> = {
  'built-in': (input) => builtInModule(readFields(input), readUnits(input)),
  wrappers: wrappersModule,
  limits: limitsModule,
  own: (input) => ownModule(readFields(input), readLimits(input)),
}

/** The text of the module for this input, formatted as the rest of the house. */
export async function catalogueModule(input: unknown, kind: keyof typeof textOf, path: string): Promise<string> {
  const options = await resolveConfig(path)
  return format(textOf[kind](input), { ...options, parser: 'typescript' })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [input, output] = process.argv.slice(2)
  if ((input === undefined) !== (output === undefined)) {
    console.error('Usage: node scripts/catalogue.ts [input.json output.ts]')
    process.exit(1)
  }
  const path = output ?? builtIn
  const text: unknown = JSON.parse(readFileSync(input ?? own, 'utf8'))
  writeFileSync(path, await catalogueModule(text, input === undefined ? 'built-in' : 'own', path))
  if (input === undefined) {
    writeFileSync(wrappers, await catalogueModule(text, 'wrappers', wrappers))
    writeFileSync(limits, await catalogueModule(text, 'limits', limits))
  }
}
