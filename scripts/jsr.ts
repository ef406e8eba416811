// A dry run of `deno publish`. JSR takes the sources when every export has a written type and no file is missing.
import { spawnSync } from 'node:child_process'
import { installRuntimes, runtimePath } from './runtimes.ts'

installRuntimes()
const { status } = spawnSync(runtimePath('deno'), ['publish', '--dry-run', '--allow-dirty', '--quiet'], {
  stdio: 'inherit',
})
process.exitCode = status ?? 1
