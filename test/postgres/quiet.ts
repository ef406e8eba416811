import type { Log } from 'fleethook'

/** A log that says nothing. */
export const quiet: Log = { debug() {}, info() {}, warn() {}, error() {} }
