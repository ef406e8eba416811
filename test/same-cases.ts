/*
 * In place of fast-check in `npm test` and `npm run test:real`: the same cases each time, so that a change fails for what it changes. The full form,
 * each night, looks for others.
 */
import fc from '../node_modules/fast-check/lib/fast-check.js'

fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: 1 })

export * from '../node_modules/fast-check/lib/fast-check.js'
export default fc
