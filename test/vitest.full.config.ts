import type { ViteUserConfig } from 'vitest/config'
import { configFor } from './vitest.config.ts'

/** `npm run test:full`, which `npm run validate` runs. */
const config: ViteUserConfig = configFor('full')
export default config
