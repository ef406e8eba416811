import { closeSync, fdatasyncSync, openSync, writevSync } from 'node:fs'

/** Appends texts to a file. */
export interface RawLog {
  /** Resolves when the text is on disk. */
  append(text: string): Promise<void>
  close(): void
}

/** The limits of one sync, as in the inbox that it is compared with. */
const mostTexts = 1024
const mostBytes = 4 * 1_048_576

interface Waiting {
  readonly line: Buffer
  readonly resolve: () => void
}

/**
 * The least work of a store that syncs before it answers: it appends lines to a file, with fdatasync and the same group
 * commit. It cannot find, delete or order messages.
 */
export function createRawLog(path: string): RawLog {
  const file = openSync(path, 'w')
  let waiting: Waiting[] = []
  let armed = false

  function takeBatch(): Waiting[] {
    let bytes = 0
    let count = 0
    for (const { line } of waiting) {
      if (count === mostTexts || (count > 0 && bytes + line.length > mostBytes)) break
      bytes += line.length
      count += 1
    }
    const batch = waiting.slice(0, count)
    waiting = waiting.slice(count)
    return batch
  }

  function commit(): void {
    const batch = takeBatch()
    writevSync(
      file,
      batch.map(({ line }) => line),
    )
    fdatasyncSync(file)
    for (const { resolve } of batch) resolve()
    armed = waiting.length > 0
    if (armed) setImmediate(commit)
  }

  return {
    append: (text) =>
      new Promise((resolve) => {
        waiting.push({ line: Buffer.from(`${text}\n`), resolve })
        if (armed) return
        armed = true
        setImmediate(commit)
      }),
    close: () => closeSync(file),
  }
}
