// Empties dist/ so that the package never carries a file that the sources no longer have.
import { rmSync } from 'node:fs'

rmSync(new URL('../dist', import.meta.url), { recursive: true, force: true })
