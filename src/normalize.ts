/**
 * The pure normalizer: reads messages of all three formats as events of one union. It does no I/O and runs anywhere.
 *
 * @module
 */
export { FleethookError, type ErrorCode } from './base/errors.ts'
export type * from './events/event.ts'
export {
  builtInFields,
  type BuiltInFields,
  type EnumType,
  type ExtendedBy,
  type FieldCatalogue,
  type FieldName,
  type FieldType,
  type FieldValues,
  type LimitedType,
  type Limits,
  type OtherField,
  type ValueOf,
} from './events/fields.ts'
export type * from './events/values.ts'
export { encode, type Encodable } from './wire/encode.ts'
export { checkEnvelope, type EnvelopeFault } from './wire/envelope.ts'
export {
  createNormalizer,
  normalize,
  type NormalizeOptions,
  type Normalizer,
  type NormalizerOptions,
} from './wire/normalizer.ts'
export { split, splitValue, type Piece, type Split, type ValuePiece } from './wire/split.ts'
