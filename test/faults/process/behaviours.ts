/** The ways in which a handler can go wrong. */
export type BehaviourName = 'fails' | 'throwsNull' | 'hangs' | 'burns' | 'leaks' | 'kills'

const kept: unknown[] = []

/** Each is called for every message of a vehicle that has its name. */
export const behaviours: Readonly<Record<BehaviourName, () => Promise<void>>> = {
  async fails() {
    throw new Error('no')
  },
  throwsNull: () => Promise.reject(null),
  /** Does not listen to its signal either. */
  hangs: () => new Promise<void>(() => {}),
  async burns() {
    for (const end = performance.now() + 100; performance.now() < end;);
  },
  /** Holds on to 64 kB a message for good. */
  async leaks() {
    kept.push(new Uint8Array(65_536).fill(1))
  },
  /** Ends its process, every time, as what eats up memory does: not at once. */
  kills() {
    setTimeout(() => process.kill(process.pid, 'SIGKILL'), 50)
    return new Promise<void>(() => {})
  },
}

export function isBehaviour(name: string): name is BehaviourName {
  return Object.hasOwn(behaviours, name)
}
