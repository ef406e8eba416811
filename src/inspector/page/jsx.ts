// What esbuild turns JSX into. Calls of `h` are shorter than calls of the automatic runtime, which makes the page smaller.
export { Fragment, h } from 'preact'
