// Verifies an access token and lists that user's surveys: Node with Connect (protobuf over HTTP/1.1).
//
// Stubs: npx buf generate proto, with protoc-gen-es as in buf.gen.yaml; this repository's own are used here.
// Libraries: @connectrpc/connect, @connectrpc/connect-node, @bufbuild/protobuf.
// Retry: both calls only read, so `unavailable` may be retried, after a pause; other failures would only repeat.
// Deadline: 4.5 s, as the gateway's; without one a call may take the server's maximum, 30 s.
// Run: TOKEN_SERVICE_URL=unix:data/rpc.sock SURVEY_SERVICE_URL=unix:data/rpc.sock APPID=… ACCESS_TOKEN=… OPENID=… node
//      examples/rpc/node-connect.js; http://127.0.0.1:port works too, and for https://host:port RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files).
import { readFileSync } from 'node:fs'
import { ConnectError, createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-node'
import { ErrorInfoSchema } from '../../dist/gen/google/rpc/error_details_pb.js'
import { SurveyService } from '../../dist/gen/surveyauth/v1/survey_service_pb.js'
import { TokenService } from '../../dist/gen/surveyauth/v1/token_service_pb.js'

for (const name of ['TOKEN_SERVICE_URL', 'SURVEY_SERVICE_URL', 'APPID', 'ACCESS_TOKEN', 'OPENID']) {
  if (!process.env[name]) throw new Error(`${name} is not set: see Run, at the top of this file`)
}
const { TOKEN_SERVICE_URL, SURVEY_SERVICE_URL, APPID: appid, ACCESS_TOKEN: accessToken, OPENID: openid } = process.env

function transport(url) {
  const common = { httpVersion: '1.1', defaultTimeoutMs: 4_500 } // over TLS '2' works too
  const socketPath = url.replace(/^unix:/, '')
  if (url !== socketPath)
    return createConnectTransport({ ...common, baseUrl: 'http://localhost', nodeOptions: { socketPath } })
  if (url.startsWith('http:')) return createConnectTransport({ ...common, baseUrl: url })
  const [ca, cert, key] = ['CA', 'CERT', 'KEY'].map((name) => readFileSync(process.env[`RPC_TLS_${name}`]))
  return createConnectTransport({ ...common, baseUrl: url, nodeOptions: { ca, cert, key } })
}

try {
  const token = await createClient(TokenService, transport(TOKEN_SERVICE_URL)).verifyAccessToken({
    appid,
    accessToken,
    openid,
  })
  console.log(token.openid, token.scope)
  const request = { appid, accessToken, openid, pageSize: 100 }
  const { surveys } = await createClient(SurveyService, transport(SURVEY_SERVICE_URL)).listSurveys(request)
  for (const { id, title } of surveys) console.log(id.toString(), title)
} catch (thrown) {
  const error = ConnectError.from(thrown)
  const [info] = error.findDetails(ErrorInfoSchema) // none: unexpected, or not from the service
  console.error(error.message, info?.reason ?? '')
  process.exitCode = 1
}
