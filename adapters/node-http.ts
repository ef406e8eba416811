import type * as Http from 'node:http'
import process from 'node:process'

/**
 * `node:http`. An import of its names would read all of its exports, and with them Node loads the code behind `fetch`: a fifth of the CPU time of
 * a start.
 */
export const http: typeof Http = process.getBuiltinModule('node:http')
