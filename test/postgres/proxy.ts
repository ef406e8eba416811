/* A TCP proxy in front of a server: it changes where connections go, cuts them, and stops forwarding. */
import { connect, createServer, type Socket } from 'node:net'

export interface Proxy extends AsyncDisposable {
  readonly port: number
  /** Ends all connections. New ones go to this port. */
  aim(port: number): void
  /** Ends all connections and refuses new ones until {@link heal}. */
  cut(): void
  /** Nothing passes in either direction, and no connection ends, until {@link heal}. */
  freeze(): void
  heal(): void
  /** As a network that lost them: nothing ever passes on connections that stand still, and new ones work. */
  forget(): void
}

export async function startProxy(target: number): Promise<Proxy> {
  const sockets = new Set<Socket>()
  const all = new Set<Socket>()
  const pairs = new WeakMap<Socket, Socket>()
  let aimed = target
  let state: 'works' | 'cut' | 'frozen' = 'works'
  const server = createServer((client) => {
    if (state === 'cut') {
      client.resetAndDestroy()
      return
    }
    const there = connect(aimed, '127.0.0.1')
    const end = (): void => {
      for (const socket of [client, there]) {
        sockets.delete(socket)
        all.delete(socket)
        socket.destroy()
      }
    }
    for (const socket of [client, there]) {
      sockets.add(socket)
      all.add(socket)
      socket.setNoDelay()
      socket.on('error', () => {})
      socket.once('close', end)
    }
    client.pipe(there)
    there.pipe(client)
    // Like a failed network, a paused socket does not notice that the other side has ended.
    if (state === 'frozen') for (const socket of [client, there]) socket.unpipe().pause()
    pairs.set(client, there).set(there, client)
  })
  function endAll(): void {
    for (const socket of sockets) socket.resetAndDestroy()
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('The proxy has no port.')
  return {
    port: address.port,
    aim(port) {
      aimed = port
      endAll()
    },
    cut() {
      state = 'cut'
      endAll()
    },
    freeze() {
      state = 'frozen'
      for (const socket of sockets) socket.unpipe().pause()
    },
    heal() {
      state = 'works'
      for (const socket of sockets) {
        const other = pairs.get(socket)
        if (other !== undefined && socket.isPaused()) socket.pipe(other)
      }
    },
    forget() {
      state = 'works'
      for (const socket of sockets) sockets.delete(socket)
    },
    async [Symbol.asyncDispose]() {
      for (const socket of all) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
