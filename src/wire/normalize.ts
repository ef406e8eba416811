import type { WireEvent } from '../events/event.ts'
import type { ExtendedBy, FieldCatalogue } from '../events/fields.ts'
import { FleethookError } from '../base/errors.ts'
import { createNormalizer, type NormalizerOptions } from './normalizer.ts'
import { split, splitValue } from './split.ts'

/** Options of {@link normalize}. */
export interface NormalizeOptions<Fields extends FieldCatalogue = FieldCatalogue> extends NormalizerOptions<Fields> {
  /** When the body was received: a `Date`, or milliseconds since the epoch. Default: now. */
  readonly receivedAt?: Date | number
}

/**
 * Reads a whole body, as text or already parsed, as events: one object, several one after another, or a list.
 *
 * Throws `FleethookError` of code `message_unreadable` when a part of it is no JSON object; {@link split} with
 * `createNormalizer` keeps what comes before it.
 *
 * @example
 * ```ts
 * import { normalize } from 'fleethook/normalize'
 *
 * for (const event of normalize('{"state":"online","vin":"0FLEETV14T0000004","createdAt":"2024-02-24T04:58:44Z"}')) {
 *   if (event.topic === 'state') console.log(event.vin, event.state) // 0FLEETV14T0000004 online
 * }
 * ```
 *
 * Specification: "Events".
 */
export function normalize<const Fields extends FieldCatalogue = FieldCatalogue>(
  body: unknown,
  options: NormalizeOptions<Fields> = {},
): WireEvent<ExtendedBy<Fields>>[] {
  const { pieces, broken } = typeof body === 'string' ? split(body) : splitValue(body)
  if (broken) {
    throw new FleethookError(
      'message_unreadable',
      `Message ${broken.index} of the body (counted from 0) is no JSON object.`,
      {
        hint: 'A body is one JSON object, several one after another, or a list of them.',
      },
    )
  }
  const normalizer = createNormalizer<Fields>(options)
  const receivedAt = options.receivedAt ?? Date.now()
  return pieces.map(({ value }) => normalizer.normalize(value, receivedAt))
}
