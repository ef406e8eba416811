import * as z from 'zod/mini'
import { checked, readJson, unwrapped } from './answer.ts'
import type { ServiceRequest } from './request.ts'

/** An object of the maker's, as it was answered: the specification does not show what is in it. */
export interface Document {
  readonly [key: string]: unknown
}

const schema: z.ZodMiniType<Document> = z.record(z.string(), z.unknown())

/** Reads an answer that is an object, out of its wrapper. */
export async function readDocument(answer: Response, request: ServiceRequest): Promise<Document> {
  return checked(schema, unwrapped(await readJson(answer, request)), request)
}
