// Runs at the end of `npm ci`. Removes the headers for C++ addons from the devDependency `node`: 67 MB that nothing here reads.
import { existsSync, readdirSync, rmSync } from 'node:fs'

const folder = 'node_modules/node/node_modules'
const found = existsSync(folder) ? readdirSync(folder) : []
for (const name of found) rmSync(`${folder}/${name}/include`, { recursive: true, force: true })
