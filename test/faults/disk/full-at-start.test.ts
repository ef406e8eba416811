import { join } from 'node:path'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { expect, test } from 'vitest'
import { message, reason, lettersIn } from '../../../src/testing/kept-message.ts'
import { settingsOf, waitingIn } from '../../inbox/sqlite-settings.ts'
import { storeAt } from '../../inbox/sqlite-store.ts'
import { createVolume, noVolumes } from './volume.ts'

test.skipIf(noVolumes !== undefined)(
  'a process that starts on a full disk opens its inbox and handles the waiting messages',
  async () => {
    using volume = createVolume(32)
    const path = join(volume.folder, 'inbox.db')
    const options = { path, waitMs: 0 }
    const before = sqliteInbox(options)(settingsOf().settings)
    await before.open()
    await before.put([message(1), message(2)])
    await before.close()
    // Creates the reserve, which a running inbox does in its first seconds.
    const store = storeAt(path)
    await store.open({ nowMs: 1 })
    for (let n = 0; n < 5; n += 1) await store.check()
    await store.close({ nowMs: 1 })
    volume.fill()
    const inbox = sqliteInbox(options)(settingsOf().settings)
    expect((await waitingIn(await inbox.open())).map(({ id }) => id)).toEqual([message(1).id, message(2).id])
    await inbox.claim(message(1).id)
    await inbox.settle(message(1).id)
    await inbox.settle(message(2).id, { as: 'dead', reason })
    expect(await lettersIn(inbox, { limit: 2 })).toHaveLength(1)
    expect(inbox.usage().messages).toBe(0)
    await inbox.close()
  },
)
