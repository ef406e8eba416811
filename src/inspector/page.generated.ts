// Made by `npm run inspector` from src/inspector/page. Do not edit.

/** The inspector's page: a shell without data, and what it loads from `assets/` beside it. The names hold a hash of the content. */
export const page: {
  readonly html: string
  readonly assets: { readonly [name: string]: { readonly type: string; readonly body: string } }
} = {
  html: '<!doctype html><title>fleethook</title>',
  assets: {},
}
