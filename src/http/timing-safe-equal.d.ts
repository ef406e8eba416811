declare module '#timing-safe-equal' {
  /** Takes as long for equal bytes as for different ones. Throws when the lengths differ. */
  export default function timingSafeEqual(a: Uint8Array, b: Uint8Array): boolean
}
