import { type FieldSetting, problemWithFields } from '../client/config.ts'
import { readBody } from './body.ts'
import { refuse } from './refusal.ts'
import type { KeptFields } from './store.ts'
import { knownFields } from './world.ts'

/** A config as it was sent, without the names that nobody knows, and those names. */
export interface SentFields {
  readonly fields: KeptFields
  readonly ignoredFields: readonly string[]
}

/** Reads the config in a request, or refuses it. */
export async function readFields(request: Request): Promise<SentFields | Response> {
  const body = await readBody(request)
  if (body === undefined) return refuse('invalid_request', 'The body is no JSON object.')
  const { fields: sent } = body
  const flaw = problemWithFields(sent)
  if (flaw !== undefined) return refuse('invalid_request', flaw)
  const fields = knownFields(sent as { readonly [name: string]: FieldSetting }) // oxlint-disable-line no-unsafe-type-assertion -- just checked
  return { fields, ignoredFields: Object.keys(Object(sent)).filter((name) => !Object.hasOwn(fields, name)) }
}
