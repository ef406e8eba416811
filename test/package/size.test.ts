import { expect, inject, test } from 'vitest'
import { bundleWorker, ceilingBytes, minimalWorker } from '../../scripts/size.ts'

test('the minimal Workers receiver, bundled as wrangler does and gzipped, is not heavier than it was measured to be', async () => {
  const { gzipBytes, parts } = await bundleWorker(minimalWorker, inject('consumer'))
  const breakdown = parts.map(({ name, bytes }) => `${name} ${bytes}`).join(', ')
  expect(gzipBytes, `minified bytes by part: ${breakdown}`).toBeLessThanOrEqual(ceilingBytes)
})

test('a bundle without `episode` does not contain it', async () => {
  const worker = (names: string, edge: string): string => `
import { createReceiver, vehicles } from 'fleethook'
import { worker } from 'fleethook/workers'
import { ${names} } from 'fleethook/when'
const receiver = createReceiver({ secret: (env) => env.WEBHOOK_SECRET, parts: [vehicles({ fields: ['Gear'] })] }).when(${edge}, console.log)
export default worker(receiver)
`
  const text = async (source: string): Promise<string> =>
    new TextDecoder().decode((await bundleWorker(source, inject('consumer'))).code)
  // An error that only `episode` has.
  const ofEpisodes = 'An episode has no'
  expect(await text(worker('is, starts', "starts(is('Gear', 'D'))"))).not.toContain(ofEpisodes)
  expect(await text(worker('episode, is', "episode('trip', { during: is('Gear', 'D'), measures: {} })"))).toContain(
    ofEpisodes,
  )
})
