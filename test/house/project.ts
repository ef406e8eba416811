import { readdirSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { SourceFile } from 'typescript/unstable/ast'
import { createVirtualFileSystem } from 'typescript/unstable/fs'
import { API } from 'typescript/unstable/sync'
import type { APIOptions, Project } from 'typescript/unstable/sync'

export const root: string = fileURLToPath(new URL('../..', import.meta.url)).replaceAll('\\', '/')

const ignored = new Set(['.git', 'node_modules', 'dist', '.runtimes', '.wrangler', '.next'])

/** The project's own files, as paths from its root. */
export function filesUnder(folder: string): readonly string[] {
  return readdirSync(`${root}${folder}`, { withFileTypes: true })
    .filter((entry) => !ignored.has(entry.name))
    .flatMap((entry) => {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`
      return entry.isDirectory() ? filesUnder(path) : [path]
    })
    .filter((path) => statSync(`${root}${path}`).isFile())
}

/** What the compiler knows about the project of a tsconfig.json in this project, or in another folder. */
export function withProject<Result>(config: string, look: (project: Project) => Result, folder: string = root): Result {
  return withCompiler({ cwd: folder }, resolve(folder, config), look)
}

/** The syntax tree of a text, as if it were the file `path` of this project. */
export function withSource<Result>(path: string, text: string, look: (file: SourceFile) => Result): Result {
  const config = '/project/tsconfig.json'
  const files = {
    [config]: '{ "compilerOptions": { "types": [] }, "include": ["**/*.ts"] }',
    [`/project/${path}`]: text,
  }
  return withCompiler({ fs: createVirtualFileSystem(files) }, config, (project) =>
    look(sourceFile(project, `/project/${path}`)),
  )
}

export function sourceFile(project: Project, path: string): SourceFile {
  const file = project.program.getSourceFile(path)
  if (!file) throw new Error(`The compiler has no file ${path}.`)
  return file
}

/** `close` ends the compiler by a signal, and then it prints an error. Behind the script, it ends without one. */
const launcher = process.platform === 'win32' ? {} : { tsserverPath: `${root}test/house/compiler.sh` }

function withCompiler<Result>(options: APIOptions, config: string, look: (project: Project) => Result): Result {
  const api = new API({ ...options, ...launcher })
  try {
    const project = api.updateSnapshot({ openProjects: [config] }).getProject(config)
    if (!project) throw new Error(`The compiler does not open ${config}.`)
    return look(project)
  } finally {
    api.close()
  }
}
