/** Runs what a user gave us and waits for nothing: neither what it throws nor what it rejects with goes any further. */
export function guarded(run: () => unknown, failed: (thrown: unknown) => void): void {
  new Promise((resolve) => resolve(run())).catch(failed)
}
