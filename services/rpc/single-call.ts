// A single gRPC call to a server of others, which knows nothing of our streams.
import type * as grpc from '@grpc/grpc-js'

export interface SingleCall {
  /** As pathOf returns it. */
  readonly path: string
  readonly request: Buffer
  readonly metadata: grpc.Metadata
  readonly signal?: AbortSignal | undefined
  /** By performance.now(). */
  readonly deadlineMs: number
  /** Not to fail for want of a connection before the deadline. */
  readonly waitsForConnection?: boolean
}

/** The answer's bytes. @throws grpc.ServiceError */
export function callOnce(client: grpc.Client, call: SingleCall): Promise<Buffer> {
  const { path, request, metadata, signal, deadlineMs, waitsForConnection = false } = call
  metadata.setOptions({ waitForReady: waitsForConnection })
  const deadline = Date.now() + deadlineMs - performance.now()
  return new Promise((resolve, reject) => {
    const onAbort = () => made.cancel()
    const made = client.makeUnaryRequest(path, asIs, asIs, request, metadata, { deadline }, (error, bytes) => {
      signal?.removeEventListener('abort', onAbort)
      if (error) reject(error)
      else resolve(bytes ?? Buffer.alloc(0))
    })
    if (signal?.aborted) onAbort()
    else signal?.addEventListener('abort', onAbort, { once: true })
  })
}

const asIs = (bytes: Buffer) => bytes
