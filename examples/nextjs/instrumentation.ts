/** Runs when the server starts: messages that an earlier process left are handled at once, not after the next message. */
export async function register(): Promise<void> {
  if (process.env.NEXT_RUNTIME !== 'nodejs') return
  const { receiver } = await import('./receiver')
  await receiver.open()
}
