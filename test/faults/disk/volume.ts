import { execFileSync, spawnSync } from 'node:child_process'
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { native } from './native.ts'

/** A disk for one test: ext4 with a journal, in a file that is mounted through a loop device. Needs Linux and root. */
export interface Volume extends Disposable {
  /** Where it is mounted. */
  readonly folder: string
  /** Fills it to the last page. Returns the file that takes the room. */
  fill(): string
  /** Writes to the disk what programs did not sync. */
  sync(): void
  /** The file system writes nothing more: everything that was not synced is lost. */
  cutPower(): void
  /** The file system finds an error in itself and becomes read-only, as after a disk failure. */
  makeReadOnly(): void
  /** Mounts it again as after a reboot, repaired if needed. Waits until no process uses it. */
  mountAgain(): Promise<void>
}

const prefix = 'fleethook-volume-'

function run(command: string, ...args: readonly string[]): string {
  return execFileSync(command, args, { encoding: 'utf8', stdio: 'pipe' }).trim()
}

/** Removes the volumes of runs that were killed. */
function cleanUp(): void {
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n')
  for (const line of mounts.filter((each) => each.startsWith('/dev/') && each.includes(join(tmpdir(), prefix)))) {
    const [device = '', folder = ''] = line.split(' ')
    const owner = Number(/volume-(\d+)-/.exec(folder)?.[1])
    if (isAlive(owner)) continue
    try {
      run('umount', '--lazy', folder)
      run('umount', '--lazy', folder)
      run('losetup', '--detach', device)
      rmSync(join(folder, '..'), { recursive: true, force: true })
    } catch {
      // Another run removes it, or it is gone.
    }
  }
}

/**
 * `e2fsck` reports with a status below 4 that the file system is intact or repaired, and with 8 that the device is in use:
 * a program that another test started in a mount namespace of its own keeps the volume mounted until it ends.
 */
async function repair(device: string): Promise<void> {
  for (let tries = 0; ; tries++) {
    const { status, stdout, stderr } = spawnSync('e2fsck', ['-p', device], { encoding: 'utf8' })
    if (status !== null && status < 4) return
    if (status !== 8 || tries === 300) throw new Error(`e2fsck ended with ${String(status)}: ${stdout}${stderr}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

export function createVolume(megabytes: number): Volume {
  cleanUp()
  const place = mkdtempSync(join(tmpdir(), `${prefix}${process.pid}-`))
  const image = join(place, 'image')
  const folder = join(place, 'mounted')
  mkdirSync(folder)
  writeFileSync(image, '')
  truncateSync(image, megabytes * 1_048_576)
  run('mkfs.ext4', '-q', '-F', '-e', 'remount-ro', image)
  const device = run('losetup', '--find', '--show', image)
  // What lies below takes no files. Else a receiver could create its inbox there while the volume is repaired.
  run('mount', '-t', 'tmpfs', '-o', 'ro', 'below', folder)
  run('mount', device, folder)

  async function unmount(): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        run('umount', folder)
        return
      } catch (error) {
        if (tries === 100) throw error
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  }

  return {
    folder,
    fill() {
      const filler = join(folder, 'filler')
      const file = openSync(filler, 'w')
      try {
        for (;;) writeSync(file, new Uint8Array(4096))
      } catch (error) {
        if (!(error instanceof Error) || Reflect.get(error, 'code') !== 'ENOSPC') throw error
      } finally {
        closeSync(file)
      }
      return filler
    },
    sync: () => void run('sync', '--file-system', folder),
    cutPower() {
      if (typeof native === 'string') throw new Error(native)
      run(native.shutdown, folder)
    },
    makeReadOnly: () => writeFileSync(`/sys/fs/ext4/${basename(device)}/trigger_fs_error`, 'a test'),
    async mountAgain() {
      await unmount()
      await repair(device)
      run('mount', device, folder)
    },
    [Symbol.dispose]() {
      try {
        run('umount', '--lazy', folder)
        run('umount', '--lazy', folder)
      } catch {
        // It was not mounted again.
      }
      run('losetup', '--detach', device)
      rmSync(place, { recursive: true, force: true })
    },
  }
}

function look(): string | undefined {
  if (typeof native === 'string') return native
  if (process.getuid?.() !== 0) return 'they need root'
  try {
    createVolume(8)[Symbol.dispose]()
    return undefined
  } catch (error) {
    return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
  }
}

/** Why this machine cannot have volumes, if so. The warning says which proofs are missing. */
export const noVolumes: string | undefined = look()
if (noVolumes !== undefined) {
  console.warn(
    `\nNOT PROVED HERE: power cuts, full and failing disks. They need Linux, root, loop devices and a C compiler: ${noVolumes}\n`,
  )
}
