import type { Plugin, ViteUserConfig } from 'vitest/config'
import { configFor } from '../../vitest.config.ts'
import { planted } from './planted.ts'

/** Plants the error with the number that the environment names. */
function planting(error = planted[Number(process.env['PLANTED'] ?? NaN)]): Plugin {
  return {
    name: 'planted',
    enforce: 'pre',
    transform(code, id) {
      if (error === undefined || !id.endsWith(`src/when/${error.file}.ts`)) return undefined
      if (code.split(error.code).length !== 2) throw new Error(`There is no single place for: ${error.what}.`)
      return code.replace(error.code, error.instead)
    },
  }
}

const short = configFor('short')
// A cached module would be that of another error.
const config: ViteUserConfig = { ...short, test: { ...short.test, fsModuleCache: false }, plugins: [planting()] }
export default config
