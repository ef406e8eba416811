/** The smallest picture there is of a vehicle: one grey pixel, as PNG. */
const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=='

/** The image that every vehicle of the sandbox has. */
export function vehicleImage(): Response {
  return new Response(
    Uint8Array.from(atob(png), (character) => character.charCodeAt(0)),
    { headers: { 'content-type': 'image/png' } },
  )
}
