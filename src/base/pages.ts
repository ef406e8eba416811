/** Somebody who looks at a list often stops after its first items. */
export const firstPage: number = 20
export const largestPage = 500

/**
 * The budget of a page, in bytes of messages or states. An inbox ends a page with the item that reaches it, so a page of large messages costs no more
 * memory than one of small ones, and one item is always in it.
 */
export const pageBytes = 1_048_576

/** No pages, for an inbox in which nothing can wait. */
export async function* nothing(): AsyncGenerator<never> {}

interface Sized {
  readonly bytes: number
}

/** The first of `items` that make a page. Reads no further than the last of them. */
export function pageOf<Item>(items: Iterable<Item>, limit: number, bytesOf: (item: Item) => number): Item[] {
  const page: Item[] = []
  let bytes = 0
  for (const item of items) {
    page.push(item)
    bytes += bytesOf(item)
    if (page.length >= limit || bytes >= pageBytes) break
  }
  return page
}

export const bytesOfMessage = ({ message }: { readonly message: Sized }): number => message.bytes

/**
 * What a query finds, in pages that grow from `size`. `find` gets the last item of the page before. A page can be shorter than asked for because
 * its bytes ended it, so only an empty page is certainly the last, or a short page whose `bytesOf` are within the budget.
 */
export async function* pagesOf<Found>(
  find: (last: Found | undefined, limit: number) => Promise<readonly Found[]>,
  size: number = largestPage,
  bytesOf: (item: Found) => number = () => pageBytes,
): AsyncGenerator<readonly Found[]> {
  let last: Found | undefined
  for (let limit = size; ; limit = Math.min(4 * limit, largestPage)) {
    const page = await find(last, limit)
    if (page.length > 0) yield page
    last = page.at(-1)
    if (last === undefined) return
    if (page.length < limit && page.reduce((sum, item) => sum + bytesOf(item), 0) < pageBytes) return
  }
}
