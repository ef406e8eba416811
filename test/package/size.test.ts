import { expect, inject, test } from 'vitest'
import { bundleWorker, ceilingBytes, minimalWorker } from '../../scripts/size.ts'

test('the minimal Workers receiver, bundled as wrangler does and gzipped, is not heavier than it was measured to be', async () => {
  const { gzipBytes, parts } = await bundleWorker(minimalWorker, inject('consumer'))
  const breakdown = parts.map(({ name, bytes }) => `${name} ${bytes}`).join(', ')
  expect(gzipBytes, `minified bytes by part: ${breakdown}`).toBeLessThanOrEqual(ceilingBytes)
})
