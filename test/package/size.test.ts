import { expect, inject, test } from 'vitest'
import { budgetBytes, bundleWorker, minimalWorker } from '../../scripts/size.ts'

test('the minimal Workers receiver, bundled as wrangler does and gzipped, stays within the budget', async () => {
  const { gzipBytes, parts } = await bundleWorker(minimalWorker, inject('consumer'))
  const breakdown = parts.map(({ name, bytes }) => `${name} ${bytes}`).join(', ')
  expect(gzipBytes, `minified bytes by part: ${breakdown}`).toBeLessThanOrEqual(budgetBytes)
})
