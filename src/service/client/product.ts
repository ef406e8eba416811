import * as z from 'zod/mini'
import { checked, readJson, unwrapped } from './answer.ts'
import type { Call } from './call.ts'
import type { ServiceRequest } from './request.ts'
import type { CallOptions } from './webhook.ts'

/** A vehicle or an energy site that a customer has shared (specification: "Consented products"; the shape is our reading). */
export interface Product {
  readonly product_type: 'vehicle' | 'energy' | (string & {})
  /** The VIN, or the id of the energy site. */
  readonly product_id: string
  /** Who shared it. */
  readonly customer?: {
    /** Stands for the customer; stays the same for this business. */
    readonly id: string
    /** The business's own word for the customer. */
    readonly ref?: string | null
    readonly [key: string]: unknown
  }
  /** ISO 8601. */
  readonly granted_at?: string
  readonly [key: string]: unknown
}

const product: z.ZodMiniType<Product> = z.looseObject({
  product_type: z.string(),
  product_id: z.pipe(z.union([z.string(), z.number()]), z.transform(String)),
  customer: z.exactOptional(z.looseObject({ id: z.string(), ref: z.exactOptional(z.nullable(z.string())) })),
  granted_at: z.exactOptional(z.string()),
})

/** Everything that customers have shared with the business. */
export function listProducts(call: Call, { signal }: CallOptions = {}): Promise<readonly Product[]> {
  const request: ServiceRequest = { method: 'GET', path: '/api/business/products', idempotent: true, signal }
  return call(request, async (answer) => checked(z.array(product), unwrapped(await readJson(answer, request)), request))
}

/** The VINs among products. */
export function vinsOf(products: readonly Product[]): readonly string[] {
  return [...new Set(products.filter((item) => item.product_type === 'vehicle').map((item) => item.product_id))]
}
