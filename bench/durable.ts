/**
 * Measures what it costs to have each message on disk before it is acknowledged: on this disk, and with syncs that take 2 and
 * 10 ms, as on volumes in a cloud. `npm run bench -- durable`, about ten minutes. The slow syncs need Linux and a C compiler.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, release, tmpdir, type } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { DatabaseSync } from 'node:sqlite'
import { canSlowSyncs, memoryFolder, slowSyncs } from './durable/slow-disk.ts'
import { canPin, measuredCore, pinned } from './pin.ts'

const scratch = mkdtempSync(join(tmpdir(), 'fleethook-bench-'))
const canSlow = canSlowSyncs(scratch)

interface Disk {
  readonly name: string
  readonly folder: string
  readonly syncMicroseconds: number
}

const disks: readonly Disk[] = [
  { name: 'the disk of this machine', folder: '.', syncMicroseconds: 0 },
  { name: 'a file system in memory, each sync 2 ms', folder: memoryFolder, syncMicroseconds: 2_000 },
  { name: 'a file system in memory, each sync 10 ms', folder: memoryFolder, syncMicroseconds: 10_000 },
]

/** Runs a part. The part over HTTP pins its own processes. */
function part(script: string, { folder, syncMicroseconds }: Disk, pin: boolean): void {
  const path = fileURLToPath(new URL(`durable/${script}`, import.meta.url))
  const plain = [process.execPath, path, '--folder', folder]
  const [command = process.execPath, ...args] = pin ? pinned(measuredCore, plain) : plain
  const env = { ...process.env, ...(syncMicroseconds === 0 ? {} : slowSyncs(scratch, syncMicroseconds)) }
  if (spawnSync(command, args, { stdio: 'inherit', env }).status !== 0) process.exitCode = 1
}

const version = new DatabaseSync(':memory:').prepare('SELECT sqlite_version() AS version').get()?.['version']
console.log(
  `Node ${process.versions.node}, SQLite ${String(version)}; ${type()} ${release()}, ${cpus().length} × ${cpus()[0]?.model.trim()}`,
)
console.log(canPin ? 'Over HTTP the server is on one core and the load on the other.' : 'Processes are not pinned.')
for (const disk of disks) {
  if (disk.syncMicroseconds > 0 && !canSlow) {
    console.log(`\nNOT MEASURED, because there is no C compiler: ${disk.name}`)
    process.exitCode = 1
    continue
  }
  console.log(`\n## On ${disk.name}\n\nEach put waits for the previous one:\n`)
  part('appends.ts', disk, false)
  console.log('\nOver HTTP, with a handler:\n')
  part('http.ts', disk, false)
}
rmSync(scratch, { recursive: true })
