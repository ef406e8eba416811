/** The parts of the Durable Objects API that fleethook uses, written out so that no types package is needed. */

/** What a column of a row holds. */
export type SqlValue = string | number | null | ArrayBuffer

/**
 * The database of one object. It is synchronous: no answer leaves the object before everything that it wrote is on several
 * machines.
 */
export interface ObjectSql {
  exec(
    query: string,
    ...bindings: readonly (string | number | null)[]
  ): {
    toArray(): Record<string, SqlValue>[]
  }
}

/** `ctx.storage` of an object whose class is one of `new_sqlite_classes`. */
export interface ObjectStorage {
  readonly sql: ObjectSql
  /** Keeps everything that `change` writes, or nothing. */
  transactionSync<Result>(change: () => Result): Result
  /** Resolves when everything that was written is on several machines. */
  sync(): Promise<void>
  /** Calls `alarm` of the object's class at that time, in milliseconds since the epoch; there is one alarm at a time. */
  setAlarm(scheduledTime: number): Promise<void>
  deleteAlarm(): Promise<void>
}

/** What the platform gives the constructor of an object's class. */
export interface ObjectState {
  readonly storage: ObjectStorage
}

/** A way to one object. */
export interface ObjectStub {
  fetch(
    url: string,
    request: { method: string; body: string },
  ): Promise<{ readonly status: number; json(): Promise<unknown> }>
}

/** A binding of `durable_objects`: `env.FLEETHOOK_INBOX`. */
export interface ObjectNamespace {
  idFromName(name: string): object
  get(id: object): ObjectStub
}

/** What a Worker's module exports for the binding to find. */
export interface InboxObjectClass {
  new (state: ObjectState, env: unknown): InboxObject
}

/** One object. The platform calls it; nobody else does. */
export interface InboxObject {
  fetch(request: Request): Promise<Response>
  alarm(): Promise<void>
}
