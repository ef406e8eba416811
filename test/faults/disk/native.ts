import { execFileSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Programs in C that cause faults. */
export interface Native {
  /** Ends the file system at its argument as a power cut does. */
  readonly shutdown: string
  /** A library to load into a process. The file at `FAULTY_DISK` says which fault its disk has. */
  readonly faultyDisk: string
  /** A library to load into a process. Each sync of a file below the folder `SLOW_DISK` takes 400 ms. */
  readonly slowDisk: string
}

/** Compiles the programs. Throws without a compiler, and on other systems than Linux. */
function compile(): Native {
  if (process.platform !== 'linux') throw new Error(`${process.platform} is not Linux`)
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-native-'))
  const native = {
    shutdown: join(folder, 'shutdown'),
    faultyDisk: join(folder, 'faulty-disk.so'),
    slowDisk: join(folder, 'slow-disk.so'),
  }
  const source = (name: string): string => join(import.meta.dirname, name)
  execFileSync('cc', ['-O2', '-o', native.shutdown, source('shutdown.c')], { stdio: 'pipe' })
  const library = (file: string, name: string): unknown =>
    execFileSync('cc', ['-O2', '-shared', '-fPIC', '-o', file, source(name), '-ldl'], { stdio: 'pipe' })
  library(native.faultyDisk, 'faulty-disk.c')
  library(native.slowDisk, 'slow-disk.c')
  return native
}

function attempt(): Native | string {
  try {
    return compile()
  } catch (error) {
    return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
  }
}

/** The programs, or the reason why there are none. */
export const native: Native | string = attempt()
