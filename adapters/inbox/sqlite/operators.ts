import type { InboxSettings } from '../../../src/inbox/inbox.ts'
import { type Control, openControl } from './control.ts'

/** The way for operators, as long as the file is open. */
export interface Operators {
  open(): void
  /** As long as the socket is there, the disk can be neither mended nor mounted anew. */
  close(): void
}

export function createOperators(path: string, settings: InboxSettings): Operators {
  let control: Control | undefined
  return {
    open() {
      // Not there before the receiver is made whole.
      const { operator, log } = settings
      if (operator !== undefined) control = openControl(path, operator, log)
    },
    close() {
      control?.close()
      control = undefined
    },
  }
}
