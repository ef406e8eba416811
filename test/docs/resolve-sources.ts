// Preloaded by the tests of the documentation: its code imports the package by name and runs on the sources.
import { registerHooks } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))

registerHooks({
  resolve(specifier, context, next) {
    const [, entry] = /^fleethook(?:\/(.+))?$/.exec(specifier) ?? [undefined, undefined]
    if (specifier !== 'fleethook' && (entry === undefined || entry === 'package.json')) return next(specifier, context)
    const file =
      entry === undefined
        ? 'src/index.ts'
        : /^(normalize|schemas|branch|client|extend|forward|inspector|metrics|once|operator|otel|sandbox|testing|when)$/.test(
              entry,
            )
          ? `src/${entry}.ts`
          : `adapters/${entry}.ts`
    return next(pathToFileURL(root + file).href, context)
  },
})
