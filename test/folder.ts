import { mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const folders = new Set<string>()

/** An empty folder among the temporary files, by its real path. It is gone when the file of its test has ended. */
export function newFolder(name: string): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), `fleethook-${name}-`)))
  folders.add(folder)
  return folder
}

export function removeFolders(): void {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
  folders.clear()
}
