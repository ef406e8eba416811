import { execFileSync } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** What these faults need of the machine, and is written in C. */
export interface Native {
  /** Ends a file system as a power cut does: its one argument. */
  readonly shutdown: string
  /** To be loaded into a process: what its disk does is in the file that `FAULTY_DISK` names. */
  readonly faultyDisk: string
}

/** Compiles them. Throws where there is no compiler, or another system than Linux. */
function compile(): Native {
  if (process.platform !== 'linux') throw new Error(`${process.platform} is not Linux`)
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-native-'))
  const native = { shutdown: join(folder, 'shutdown'), faultyDisk: join(folder, 'faulty-disk.so') }
  const source = (name: string): string => join(import.meta.dirname, name)
  execFileSync('cc', ['-O2', '-o', native.shutdown, source('shutdown.c')], { stdio: 'pipe' })
  execFileSync('cc', ['-O2', '-shared', '-fPIC', '-o', native.faultyDisk, source('faulty-disk.c'), '-ldl'], {
    stdio: 'pipe',
  })
  return native
}

function attempt(): Native | string {
  try {
    return compile()
  } catch (error) {
    return error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)
  }
}

/** The programs, or why there are none. */
export const native: Native | string = attempt()
