import type { FieldCatalogue, FieldType } from './fields.ts'

/**
 * Reads the compact text that `scripts/catalogue.ts` writes: lines of `type:Name Name …`, where the type of an enum is
 * `Prefix=Constant Constant …`. The text is a third of the size of the object it stands for, which counts at the edge.
 *
 * The caller states the literal type, because no type can be read out of a text at run time; a test compares the two.
 */
// oxlint-disable-next-line no-unnecessary-type-parameters -- see above: it is the caller's word
export function readCatalogue<Fields extends FieldCatalogue>(text: string): Fields {
  const types: Record<string, FieldType> = {}
  for (const line of text.split('\n')) {
    const colon = line.indexOf(':')
    const equals = line.indexOf('=')
    const type =
      equals < 0
        ? (line.slice(0, colon) as FieldType) // oxlint-disable-line no-unsafe-type-assertion
        : { enum: line.slice(equals + 1, colon).split(' '), prefix: line.slice(0, equals) }
    for (const name of line.slice(colon + 1).split(' ')) types[name] = type
  }
  return types as Fields // oxlint-disable-line no-unsafe-type-assertion
}
