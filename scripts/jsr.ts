// What `deno publish` would say: the sources as JSR takes them, with a written type on every export and nothing missing.
import { spawnSync } from 'node:child_process'
import { installRuntimes, runtimePath } from './runtimes.ts'

installRuntimes()
const { status } = spawnSync(runtimePath('deno'), ['publish', '--dry-run', '--allow-dirty', '--quiet'], {
  stdio: 'inherit',
})
process.exitCode = status ?? 1
