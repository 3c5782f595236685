// OpenTelemetry spans, when an SDK was loaded before us (`node --import ./tracing.js`); without one none are made.
// Spans carry route and method names, outcomes and the request id, and never a URL, a query or a credential.
import {
  type Attributes,
  type Context,
  isSpanContextValid,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import type { GatewayOptions } from '../../gateway/app.js'
import type { DispatcherOptions } from '../../services/rpc/dispatcher.js'
import { codeName } from './log.js'

export interface Tracing {
  readonly startRequestSpan: NonNullable<GatewayOptions['startSpan']>
  readonly startCallSpan: NonNullable<DispatcherOptions['startSpan']>
}

/** undefined when no SDK is there to collect spans. */
export function createTracing(): Tracing | undefined {
  const tracer = loadedTracer()
  return tracer && createSpansOn(tracer)
}

function createSpansOn(tracer: Tracer): Tracing {
  function startSpan(name: string, parent: string, attributes: Attributes) {
    const span = tracer.startSpan(name, { kind: SpanKind.SERVER, attributes }, contextOf(parent))
    const { traceId, spanId, traceFlags } = span.spanContext()
    const traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`
    return { span, traceparent }
  }

  return {
    startRequestSpan(method, route, parent) {
      const attributes = { 'http.request.method': method, 'http.route': route }
      const { span, traceparent } = startSpan(`${method} ${route}`, parent, attributes)
      return {
        traceparent,
        end({ status, outcome, requestId }) {
          span.setAttributes({ 'http.response.status_code': status, request_id: requestId })
          if (status >= 400) span.setAttribute('error.type', outcome)
          if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR, message: outcome })
          span.end()
        },
      }
    },
    startCallSpan(service, method, parent) {
      const attributes = { 'rpc.system': 'grpc', 'rpc.service': service, 'rpc.method': method }
      const { span, traceparent } = startSpan(`${service}/${method}`, parent, attributes)
      return {
        traceparent,
        end({ code, requestId }) {
          span.setAttributes({ 'rpc.grpc.status_code': code ?? 0, request_id: requestId })
          if (code !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: codeName(code) })
          span.end()
        },
      }
    },
  }
}

/** The SDK's tracer. The API gives a proxy that would make empty spans without one. */
function loadedTracer(): Tracer | undefined {
  const provider = trace.getTracerProvider()
  if (!('getDelegateTracer' in provider)) return provider.getTracer('survey-auth')
  return (provider as { getDelegateTracer(name: string): Tracer | undefined }).getDelegateTracer('survey-auth')
}

/** W3C Trace Context, level 1. */
const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/

function contextOf(traceparent: string): Context {
  const [, traceId = '', spanId = '', flags = ''] = TRACEPARENT.exec(traceparent) ?? []
  const parent = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true }
  return isSpanContextValid(parent) ? trace.setSpanContext(ROOT_CONTEXT, parent) : ROOT_CONTEXT
}
