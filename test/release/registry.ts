// A registry on this machine, in a process of its own: it takes `fleethook`, and gets everything else from the registry that npm has.
// Arguments: a folder, the address of the other registry, and the file of its certificates, or nothing.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { runServer } from 'verdaccio'

const [folder = '', url = '', certificates = ''] = process.argv.slice(2)
const access = '$all'
const server = await runServer({
  storage: join(folder, 'storage'),
  configPath: join(folder, 'config.yaml'),
  web: { enable: false },
  auth: { htpasswd: { file: join(folder, 'htpasswd'), max_users: -1 } },
  uplinks: {
    configured: {
      url,
      timeout: '60s',
      maxage: '1h',
      max_fails: 100,
      ...(certificates === '' ? {} : { ca: readFileSync(certificates, 'utf8') }),
    },
  },
  packages: { fleethook: { access, publish: access }, '**': { access, proxy: 'configured' } },
  max_body_size: '50mb',
  log: { type: 'stdout', format: 'pretty', level: 'error' },
})
server.listen(0, '127.0.0.1', () => {
  const address = server.address()
  if (address !== null && typeof address === 'object') console.log(`listening on http://127.0.0.1:${address.port}`)
})
