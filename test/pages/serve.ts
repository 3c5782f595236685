// The public gateway on loopback with fake services behind it.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createGateway, type RequestRecord } from '../../gateway/app.js'
import type { Brand } from '../../gateway/pages/brand.js'
import { createLook } from '../../gateway/pages/look.js'
import { defaultLimits } from '../gateway/start-gateway.js'
import { freePort } from '../harness/free-port.js'
import { FakeServices } from './fake-services.js'

export interface Served {
  readonly services: FakeServices
  readonly origin: string
  /** Errors that a route threw. */
  readonly unexpected: unknown[]
  /** The log's record of each request. */
  readonly records: RequestRecord[]
  close(): Promise<void>
}

/** `publicUrl` is only the address that pages believe they have; requests go to `origin`. */
export async function serve(publicUrl?: string, brand?: Brand): Promise<Served> {
  const services = new FakeServices()
  const unexpected: unknown[] = []
  const records: RequestRecord[] = []
  const port = publicUrl === undefined ? await freePort() : 0
  const { server } = createGateway({
    ...services.deps(publicUrl ?? `http://127.0.0.1:${port}`),
    look: createLook(brand),
    httpErrorStatus: 'semantic',
    rpcTimeoutMs: 5000,
    limits: { ...defaultLimits, rateLimit: false },
    trustedProxies: [],
    onRequest: (record) => records.push(record),
    onUnexpected: (error) => unexpected.push(error),
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const close = async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  }
  return { services, origin, unexpected, records, close }
}
