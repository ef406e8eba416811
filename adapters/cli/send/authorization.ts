/** What makes a secret impossible to send, without a character of it. */
export function flawOfSecret(secret: string): string | undefined {
  if (secret === '') return 'The secret is empty.'
  if (secret.trim() !== secret) return 'The secret has blanks or a line end at its ends.'
  if (!/^[\x20-\x7e]+$/.test(secret))
    return 'The secret has characters that are not visible ASCII: a header does not carry them.'
  return undefined
}
