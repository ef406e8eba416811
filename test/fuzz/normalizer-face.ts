import { fleetEvent } from '../../src/events/schemas.ts'
import { oneOf, type Random, whole } from '../../src/service/fleet/random.ts'
import { createNormalizer, encode, type Format, type Split, split, type WireEvent } from '../../src/normalize.ts'
import { type Face, hiddenPollution, pollution } from './face.ts'
import { mutatedText } from './mutation.ts'

const receivedAt = Date.UTC(2026, 4, 1)
const formats = ['service', 'vehicle_maker', 'event_collector'] as const satisfies readonly Format[]
const auto = createNormalizer()
const others = [createNormalizer({ decode: false }), ...formats.map((format) => createNormalizer({ format }))] as const
const topics = new Set(['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity', 'unknown'])

/** Splits a text and normalizes its parts. */
export const normalizerFace: Face = {
  check: (random) => flawOf(mutatedText(random), random),
  checkAll: hiddenPollution,
}

/** Describes what the normalizer must not do with a text, if it did so. */
export function flawOf(text: string, random: Random): string | undefined {
  try {
    const found = split(text)
    return splitFlaw(text, found) ?? eventsFlaw(text, found, random) ?? pollution()
  } catch (error) {
    return `It threw ${error instanceof Error ? error.stack : String(error)}`
  }
}

function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) }
  } catch {
    return undefined
  }
}

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Pieces are the results of `JSON.parse` for their part of the text, in order. A whole text is one piece or a list. */
function splitFlaw(text: string, { pieces, broken }: Split): string | undefined {
  const whole = parsed(text.startsWith('\ufeff') ? text.slice(1) : text)
  if (whole && isObject(whole.value) && (pieces.length !== 1 || broken)) return 'An object is not one piece.'
  if (whole && Array.isArray(whole.value)) {
    const objects = whole.value.findIndex((item) => !isObject(item))
    const wanted = objects < 0 ? whole.value.length : objects
    if (pieces.length !== wanted || (broken?.index ?? wanted) !== wanted) return 'A list is not its pieces.'
    if ((broken === undefined) !== objects < 0) return 'A list is broken, or not, where it should not be.'
  }
  if (broken && broken.index !== pieces.length) return 'The number of the broken piece is wrong.'
  let last = 0
  for (const { start, end } of pieces) {
    if (start < last || end <= start || end > text.length) return 'Pieces are not one after another.'
    last = end
  }
  return undefined
}

function eventsFlaw(text: string, { pieces }: Split, random: Random): string | undefined {
  for (const { value, start, end } of pieces) {
    const event = auto.normalize(value, receivedAt)
    const slice: unknown = JSON.parse(text.slice(start, end))
    if (!isObject(slice)) return 'A piece is no object.'
    const again = auto.normalize(slice, receivedAt)
    if (again.id !== event.id) return 'The same text has another id the second time.'
    const flaw = eventFlaw(event, value) ?? resendFlaw(event, oneOf(random, formats), text.slice(start, end))
    if (flaw !== undefined) return flaw
    const other = oneOf(random, others).normalize(value, receivedAt)
    if (!topics.has(other.topic) || !/^[0-9a-f]{32}$/.test(other.id)) return 'Another reading makes no event of it.'
    if (whole(random, 0, 31) === 0) {
      if (!fleetEvent.safeParse(event).success) return `The schema does not take the ${event.topic} event.`
      if (end - start < longest && JSON.stringify(value) !== JSON.stringify(slice))
        return 'The message is not as it was.'
    }
  }
  return undefined
}

function eventFlaw(event: WireEvent, message: object): string | undefined {
  if (!topics.has(event.topic)) return `There is no topic ${event.topic}.`
  if (event.raw !== message) return 'raw is not the message.'
  if (Number.isNaN(event.at.getTime())) return 'at is no date.'
  if (event.receivedAt.getTime() !== receivedAt) return 'receivedAt is another.'
  if (typeof event.createdAt !== 'string') return 'createdAt is no text.'
  if (event.vin === '' || (event.vin === undefined && event.topic !== 'unknown')) return 'It has no VIN.'
  if (!/^[0-9a-f]{32}$/.test(event.id)) return 'The id is none.'
  return undefined
}

/**
 * JSON.parse reads these as infinity, and JSON.stringify writes infinity as null. So they do not survive a round trip.
 */
const beyondDoubles = /\d{300}|[eE]\+?\d{3}/

/** `JSON.stringify` cannot write a deeper value. */
const longest = 4_000

/** A message that is written in any format and read again has the same id. */
function resendFlaw(event: WireEvent, format: Format, sent: string): string | undefined {
  if (sent.length > longest || beyondDoubles.test(sent)) return undefined
  const text = JSON.stringify(encode(event, format))
  const [piece] = split(text).pieces
  if (piece === undefined) return `Written as ${format} it is no message.`
  const again = auto.normalize(piece.value, receivedAt)
  if (again.topic !== event.topic) return `Written as ${format} it comes back as ${again.topic}, not ${event.topic}.`
  return again.id === event.id ? undefined : `Written as ${format} the ${event.topic} event has another id.`
}
