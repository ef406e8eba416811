import type { StreamingConfig } from '../client/config.ts'
import { problemWithFields } from '../client/config.ts'
import { type Clock, systemClock } from '../../base/clock.ts'
import { FleethookError } from '../../base/errors.ts'
import { type PostMessage, postByFetch } from './post.ts'
import { memoryStore, type SandboxStore } from './store.ts'

/** Which commands the business asked for at set-up (specification: "Authentication"). */
export interface CommandAccess {
  /** `'all'`: data and commands. `'charging'`: charging commands only. `'none'`: data only. Default `'all'`. */
  readonly vehicle?: 'all' | 'charging' | 'none'
  /** Whether settings of energy sites may be changed. Default `true`. */
  readonly energy?: boolean
}

/** What {@link createSandbox} takes. Only `apiKey` is required. */
export interface SandboxOptions {
  /** The business's bearer token; several while one replaces another. */
  readonly apiKey: string | readonly string[] | undefined
  readonly commands?: CommandAccess
  /** How many vehicles are shared from the beginning: 0 to 1,000. Default 3. */
  readonly vehicles?: number
  /** How many energy sites are shared: 0 to 100. Default 1. */
  readonly energySites?: number
  /** What the vehicles stream from the beginning, as if another business had set it. Without it they do not stream. */
  readonly config?: StreamingConfig
  /** The same seed and start, the same vehicles. A whole number, default 1. */
  readonly seed?: number
  /** When the vehicles wake up, in milliseconds since the epoch. Default: now. */
  readonly startAt?: number
  /** Seconds that pass for the vehicles in each second: 0 to 1,000. Default 1; 0 lets time pass by `advance` only. */
  readonly speed?: number
  /** Lets the webhook be on this machine itself (loopback), which the service refuses. Default `false`. */
  readonly allowLocal?: boolean
  /** Where webhook, configs and sharing are kept. Default: in memory. */
  readonly store?: SandboxStore
  /** Posts a message to the webhook. Default: by `fetch`, which always checks the TLS certificate, whatever `verify` says. */
  readonly post?: PostMessage
  /** Default: the clock on the wall. */
  readonly clock?: Clock
}

/** The options with their defaults. */
export interface SandboxSettings {
  readonly apiKeys: readonly string[]
  readonly commands: Required<CommandAccess>
  readonly vehicles: number
  readonly energySites: number
  readonly config: StreamingConfig | undefined
  readonly seed: number
  readonly startAt: number
  readonly speed: number
  readonly allowLocal: boolean
  readonly store: SandboxStore
  readonly post: PostMessage
  readonly clock: Clock
}

/** Checks the options. Throws `option_invalid`. */
export function readOptions(options: SandboxOptions): SandboxSettings {
  const { apiKey, commands = {}, clock = systemClock } = options
  const apiKeys = apiKey === undefined ? [] : typeof apiKey === 'string' ? [apiKey] : [...apiKey]
  if (apiKeys.length === 0 || !apiKeys.every((key) => /^[\x21-\x7e]{8,}$/.test(key))) {
    throw invalid('apiKey', 'must be at least 8 visible ASCII characters', 'Is the environment variable set?')
  }
  const { vehicle = 'all', energy = true } = commands
  if (!['all', 'charging', 'none'].includes(vehicle)) {
    throw invalid('commands.vehicle', `is ${JSON.stringify(vehicle)}`, 'Give all, charging or none.')
  }
  if (options.config !== undefined) {
    const flaw = problemWithFields(options.config.fields)
    if (flaw !== undefined) throw invalid('config', `is none: ${flaw}`)
  }
  return {
    apiKeys,
    commands: { vehicle, energy },
    vehicles: whole('vehicles', options.vehicles ?? 3, 1_000),
    energySites: whole('energySites', options.energySites ?? 1, 100),
    config: options.config,
    seed: whole('seed', options.seed ?? 1, 0x7fff_ffff),
    startAt: whole('startAt', options.startAt ?? clock.now(), 8e15),
    speed: within('speed', options.speed ?? 1, 1_000),
    allowLocal: options.allowLocal ?? false,
    store: options.store ?? memoryStore(),
    post: options.post ?? postByFetch,
    clock,
  }
}

function whole(name: string, value: number, most: number): number {
  if (Number.isInteger(value)) return within(name, value, most)
  throw invalid(name, `is ${value}`, 'Give a whole number.')
}

function within(name: string, value: number, most: number): number {
  if (value >= 0 && value <= most) return value
  throw invalid(name, `is ${value}`, `Give a number from 0 to ${most}.`)
}

function invalid(name: string, flaw: string, hint?: string): FleethookError {
  return new FleethookError(
    'option_invalid',
    `Option \`${name}\` of the sandbox ${flaw}.`,
    hint === undefined ? {} : { hint },
  )
}
