/** Somebody who looks at a list often stops after its first items. */
export const firstPage: number = 20
export const largestPage = 500

/** What a query finds, in pages that grow from `size`. `find` gets the last item of the page before. */
export async function* pagesOf<Found>(
  find: (last: Found | undefined, limit: number) => Promise<readonly Found[]>,
  size: number = largestPage,
): AsyncGenerator<readonly Found[]> {
  let last: Found | undefined
  for (let limit = size; ; limit = Math.min(4 * limit, largestPage)) {
    const page = await find(last, limit)
    yield page
    last = page.at(-1)
    if (last === undefined || page.length < limit) return
  }
}

export async function firstOf<Item>(list: AsyncIterable<Item>, limit: number): Promise<readonly Item[]> {
  const found: Item[] = []
  for await (const item of list) if (found.push(item) === limit) break
  return found
}
