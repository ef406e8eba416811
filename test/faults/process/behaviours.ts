/** The ways in which a handler can go wrong. */
export type BehaviourName = 'fails' | 'throwsNull' | 'hangs' | 'burns' | 'leaks'

const kept: unknown[] = []

/** A behaviour runs for every message of a vehicle with its name. */
export const behaviours: Readonly<Record<BehaviourName, () => Promise<void>>> = {
  async fails() {
    throw new Error('no')
  },
  throwsNull: () => Promise.reject(null),
  /** Ignores its signal too. */
  hangs: () => new Promise<void>(() => {}),
  async burns() {
    for (const end = performance.now() + 100; performance.now() < end;);
  },
  /** Keeps 64 kB per message. */
  async leaks() {
    kept.push(new Uint8Array(65_536).fill(1))
  },
}

export function isBehaviour(name: string): name is BehaviourName {
  return Object.hasOwn(behaviours, name)
}
