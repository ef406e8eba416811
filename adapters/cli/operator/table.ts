import { columns } from '../service/columns.ts'

/** Rows under a heading, no wider than the terminal: the last column gives way. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const width = process.stdout.isTTY ? process.stdout.columns : Infinity
  return columns([head, ...rows])
    .split('\n')
    .map((line) => (line.length > width ? `${line.slice(0, width - 1)}…` : line))
    .join('\n')
}
