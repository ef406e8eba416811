import type { ViteUserConfig } from 'vitest/config'
import { configFor } from './vitest.config.ts'

/** `npm run test:full`, each night and before a release. */
const config: ViteUserConfig = configFor('full')
export default config
