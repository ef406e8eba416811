import type { WriteStream } from 'node:tty'
import picocolors from 'picocolors'

/** Ways to colour text. */
export type Colors = ReturnType<typeof picocolors.createColors>

/** Colours for a stream that shows them; `NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` are heeded. */
export function colorsFor(stream: WriteStream): Colors {
  // What is not a terminal has no `hasColors`, whatever the types say.
  return picocolors.createColors(stream.isTTY ? stream.hasColors() : Boolean(process.env['FORCE_COLOR']))
}
