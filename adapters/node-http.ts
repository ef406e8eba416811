import type * as Http from 'node:http'
import process from 'node:process'

/**
 * `node:http`. An import of its names would read all of its exports, and with some of them Node loads the code behind `fetch`, which makes each start
 * slower.
 */
export const http: typeof Http = process.getBuiltinModule('node:http')
