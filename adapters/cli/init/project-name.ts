/** Why a project cannot be called so, or nothing. */
export function flawOfName(name: string): string | undefined {
  return /^[a-z0-9][a-z0-9._-]{0,213}$/.test(name)
    ? undefined
    : `"${name}" cannot be the name of a package. Use small letters, digits, "-", "." and "_", a letter or digit first.`
}

/** The name for a project in a folder: the folder's, as far as a package can be called so. */
export function projectName(folderName: string, otherwise: string): string {
  const name = folderName
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, '-')
    .replaceAll(/^[._-]+|[._-]+$/g, '')
  return name === '' ? otherwise : name
}
