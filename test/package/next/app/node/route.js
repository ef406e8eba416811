import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { receiving } from '../receiving.js'

export const { GET, POST } = receiving({ inbox: sqliteInbox({ path: 'inbox.db' }) })
