import { closeSync, fsyncSync, openSync, readSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs'
import { openDatabase, pageBytes } from './database.ts'

/** Where a file says how many pages it has (https://sqlite.org/fileformat.html, "The Database Header"). */
const pageCountAt = 28

/**
 * Gives a file whose first page cannot be read that of a new one. It says which tables there are and where they begin, which is the
 * same in every inbox of one version of the schema. What was there is kept beside the file.
 */
export function mendFirstPage(path: string, walPages: number): void {
  const pages = Math.floor(statSync(path).size / pageBytes)
  if (pages === 0) return
  const first = firstPageOfNew(`${path}-new`, walPages)
  first.writeUInt32BE(pages, pageCountAt)
  const file = openSync(path, 'r+')
  try {
    const before = Buffer.alloc(pageBytes)
    readSync(file, before, 0, pageBytes, 0)
    writeFileSync(`${path}-first-page`, before, { mode: 0o600 })
    writeSync(file, first, 0, pageBytes, 0)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

function firstPageOfNew(path: string, walPages: number): Buffer {
  openDatabase(path, walPages).db.close()
  const file = openSync(path, 'r')
  try {
    const page = Buffer.alloc(pageBytes)
    readSync(file, page, 0, pageBytes, 0)
    return page
  } finally {
    closeSync(file)
    rmSync(path)
  }
}
