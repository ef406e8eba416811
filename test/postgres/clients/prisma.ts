/* What `prisma generate` writes for one table, without its types. It is not run here, because it downloads a program. */
import { PrismaPg } from '@prisma/adapter-pg'
import { getPrismaClient } from '@prisma/client/runtime/client'

const compiler = '@prisma/client/runtime/query_compiler_small_bg.postgresql'

const Client = getPrismaClient({
  clientVersion: '7.9.1',
  engineVersion: '',
  activeProvider: 'postgresql',
  previewFeatures: [],
  inlineSchema: `datasource db {
  provider = "postgresql"
}
model readings {
  schema String
  vin String
  n Int
  @@id([schema, n])
}`,
  runtimeDataModel: JSON.parse(`{ "enums": {}, "types": {}, "models": { "readings": { "dbName": null, "fields": [
  { "name": "schema", "kind": "scalar", "type": "String" },
  { "name": "vin", "kind": "scalar", "type": "String" },
  { "name": "n", "kind": "scalar", "type": "Int" }] } } }`),
  parameterizationSchema: { strings: [], graph: 'AAAAAAAAAAAAAAAA' },
  compilerWasm: {
    getRuntime: () => import(`${compiler}.mjs`),
    async getQueryCompilerWasmModule() {
      const { wasm }: { readonly wasm: string } = await import(`${compiler}.wasm-base64.mjs`)
      return new WebAssembly.Module(Buffer.from(wasm, 'base64'))
    },
    importName: './query_compiler_small_bg.js',
  },
})

/** A transaction of this client. */
export interface PrismaTransaction {
  readonly readings: {
    create(row: { readonly data: { schema: string; vin: string; n: number } }): Promise<unknown>
  }
}

export interface PrismaClient {
  $transaction(work: (tx: PrismaTransaction) => Promise<void>, options: { readonly timeout: number }): Promise<void>
  $disconnect(): Promise<void>
}

export function prismaOn(port: number): PrismaClient {
  return new Client({ adapter: new PrismaPg({ host: '127.0.0.1', port, user: 'test', database: 'postgres' }) })
}
