// Empties dist/ so that the package has no file whose source is deleted.
import { rmSync } from 'node:fs'

rmSync(new URL('../dist', import.meta.url), { recursive: true, force: true })
