// Prints one line when Node is too old because the install script of the devDependency `node` did not run.
const [major, minor] = process.versions.node.split('.').map(Number)
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(
    `fleethook's scripts need Node 22.18 or newer and this is ${process.version}. ` +
      'The devDependency "node" brings Node 24: run "npm ci" with install scripts allowed for the package "node".',
  )
  process.exit(1)
}
