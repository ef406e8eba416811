import type { FieldSetting } from '../client/config.ts'
import type { Format } from '../../events/event.ts'

/** The webhook with the value of its `auth`, which is never answered. */
export interface KeptWebhook {
  readonly url: string
  readonly format: Format
  readonly auth: string | undefined
  readonly verify: boolean
  readonly enabled: boolean
  readonly updatedAt: string
}

/** Field name to setting. */
export type KeptFields = { readonly [name: string]: FieldSetting }

/** A vehicle that is or was shared. Its config stays when it is shared no more: others may stream from it. */
export interface KeptVehicle {
  /** Which of the simulated vehicles it is. */
  readonly index: number
  readonly shared: boolean
  readonly grantedAt: string
  readonly customer: { readonly id: string; readonly ref: string | null }
  /** Nothing while it does not stream. */
  readonly fields?: KeptFields | undefined
}

/** All that a sandbox keeps over a restart: JSON. */
export interface SandboxState {
  readonly webhook?: KeptWebhook | undefined
  readonly defaultFields: KeptFields | null
  readonly vehicles: { readonly [vin: string]: KeptVehicle }
}

/** Where a sandbox keeps its state. Both may throw: the request that changed something is then answered with 500. */
export interface SandboxStore {
  /** What was saved last; nothing at the first start. */
  load(): SandboxState | undefined
  /** Keeps the state before it returns. */
  save(state: SandboxState): void
}

/** Keeps the state for as long as the sandbox lives. */
export function memoryStore(): SandboxStore {
  let kept: SandboxState | undefined
  return { load: () => kept, save: (state) => void (kept = state) }
}
