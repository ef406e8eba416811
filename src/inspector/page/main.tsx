import { render } from 'preact'
import { App, listenToKeys } from './app.tsx'
import { useSecret } from './receiver.ts'
import { followAddress, secretInAddress } from './route.ts'
import { onChange } from './signal.ts'
import { start } from './store.ts'

const given = secretInAddress()
if (given !== undefined) useSecret(given)
followAddress()
listenToKeys()
start()
onChange(() => render(<App />, document.body))
