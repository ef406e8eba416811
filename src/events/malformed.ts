/**
 * An authentic body, or a part of one, that could not be read as messages. It was refused, so this is all there is of
 * it: enough of the text to see what is wrong, never more than `limit` of it.
 */
export interface MalformedBody {
  readonly topic: 'malformed'
  /** When it reached this receiver. */
  readonly receivedAt: Date
  /** The stable error string that the answer carried. */
  readonly error: string
  /** The first 4,096 characters of the body. */
  readonly text: string
  /** The length of the whole body in characters. */
  readonly length: number
  /** Which event of the body was broken, 0-based; those before it were accepted. */
  readonly eventNumber?: number
}
