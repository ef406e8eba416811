// Runs in each test file.
import { afterAll } from 'vitest'
import { endLeftovers } from './conformance/spawn.ts'

afterAll(endLeftovers)
