import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'

/** Variables by name: those of the process, and beneath them those of a file. */
export type Environment = (name: string) => string | undefined

/** Reads the environment, and the file `path` for what is not there. A file that does not exist is an empty one. */
export function environment(path: string): Environment {
  const file = existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {}
  return (name) => process.env[name] || file[name] || undefined
}
