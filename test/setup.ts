// Runs in each test file.
import { afterAll } from 'vitest'
import { endLeftovers } from './conformance/spawn.ts'
import { removeFolders } from './folder.ts'

afterAll(() => {
  endLeftovers()
  removeFolders()
})
