import { isJsonObject, type JsonObject } from '../../wire/record.ts'

const mostBytes = 1_048_576

/** The JSON object of a request; nothing when it is none, or larger than a megabyte. */
export async function readBody(request: Request): Promise<JsonObject | undefined> {
  const length = Number(request.headers.get('content-length') ?? 0)
  if (length > mostBytes) return undefined
  try {
    const text = await request.text()
    if (text.length > mostBytes) return undefined
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** The same for requests that may come without a body. */
export async function readOptionalBody(request: Request): Promise<JsonObject | undefined> {
  const copy = request.clone()
  return (await copy.text()).trim() === '' ? {} : readBody(request)
}
