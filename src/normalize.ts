/**
 * The pure normaliser: messages of all three formats as events of one union. No input, no output, runs anywhere.
 *
 * @module
 */
export { createNormalizer, type Normalizer, type NormalizerOptions } from './wire/normalizer.ts'
export { normalize, type NormalizeOptions } from './wire/normalizer.ts'
export { split, splitValue, type Piece, type Split, type ValuePiece } from './wire/split.ts'
export { checkEnvelope, type EnvelopeFault } from './wire/envelope.ts'
export { encode, type Encodable } from './wire/encode.ts'
export { builtInFields } from './events/fields.ts'
export { FleethookError, type ErrorCode } from './base/errors.ts'
export type * from './events/event.ts'
export type * from './events/fields.ts'
export type * from './events/values.ts'
