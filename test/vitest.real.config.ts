import type { ViteUserConfig } from 'vitest/config'
import { configFor } from './vitest.config.ts'

/** `npm run test:real`, which CI runs after `npm test`. */
const config: ViteUserConfig = configFor('real')
export default config
