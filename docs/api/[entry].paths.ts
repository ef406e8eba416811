import { entries, page, reference } from '../.vitepress/reference.ts'

export default {
  async paths(): Promise<readonly { readonly params: { readonly entry: string }; readonly content: string }[]> {
    const all = await Promise.all(entries().map(reference))
    return all.map((entry) => ({ params: { entry: entry.page }, content: page(entry, all) }))
  },
}
