// Bundles a program with webpack: `node webpack.js <entry> <output> <esm | cjs | edge>`.
import { basename, dirname, resolve } from 'node:path'
import { argv } from 'node:process'
import webpack from 'webpack'

const [entry, output, form] = argv.slice(2)
const isModule = form !== 'cjs'
const config = {
  mode: 'production',
  target: form === 'edge' ? ['webworker', 'es2022'] : 'node20',
  entry: resolve(entry),
  output: {
    path: dirname(resolve(output)),
    filename: basename(output),
    module: isModule,
    chunkFormat: isModule ? 'module' : 'commonjs',
    library: { type: isModule ? 'module' : 'commonjs2' },
  },
  optimization: { minimize: false },
  performance: { hints: false },
  experiments: { outputModule: isModule },
}
webpack(config, (error, stats) => {
  if (error) throw error
  if (stats.hasErrors() || stats.hasWarnings())
    throw new Error(stats.toString({ all: false, errors: true, warnings: true }))
})
