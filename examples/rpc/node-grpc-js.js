// Verifies an access token and lists that user's surveys: Node with grpc-js.
//
// Stubs: none to generate, @grpc/proto-loader reads proto/. Libraries: @grpc/grpc-js, @grpc/proto-loader.
// Retry: both calls only read, so UNAVAILABLE may be retried, after a pause; other failures would only repeat.
// Deadline: 4.5 s, as the gateway's; without one a call may take the server's maximum, 30 s.
// Run: TOKEN_SERVICE_URL=unix:data/rpc.sock SURVEY_SERVICE_URL=unix:data/rpc.sock APPID=… ACCESS_TOKEN=… OPENID=… node
//      examples/rpc/node-grpc-js.js; http://127.0.0.1:port works too, and for https://host:port RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files).
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import * as grpc from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'

for (const name of ['TOKEN_SERVICE_URL', 'SURVEY_SERVICE_URL', 'APPID', 'ACCESS_TOKEN', 'OPENID']) {
  if (!process.env[name]) throw new Error(`${name} is not set: see Run, at the top of this file`)
}
const { TOKEN_SERVICE_URL, SURVEY_SERVICE_URL, APPID: appid, ACCESS_TOKEN: access_token, OPENID: openid } = process.env
const files = ['surveyauth/v1/token_service.proto', 'surveyauth/v1/survey_service.proto']
const options = { includeDirs: [fileURLToPath(new URL('../../proto', import.meta.url))], keepCase: true, longs: String }
const { TokenService, SurveyService } = grpc.loadPackageDefinition(loadSync(files, options)).surveyauth.v1

/** Makes one call and returns its answer. */
async function call(Service, url, method, request) {
  const pem = (name) => readFileSync(process.env[`RPC_TLS_${name}`])
  const isTls = url.startsWith('https://')
  const credentials = isTls
    ? grpc.credentials.createSsl(pem('CA'), pem('KEY'), pem('CERT'))
    : grpc.credentials.createInsecure()
  const client = new Service(url.replace(/^https?:\/\//, ''), credentials) // a service of your own keeps it open
  const deadline = new Date(Date.now() + 4_500)
  return promisify(client[method])
    .call(client, request, new grpc.Metadata(), { deadline })
    .finally(() => client.close())
}

try {
  const token = await call(TokenService, TOKEN_SERVICE_URL, 'VerifyAccessToken', { appid, access_token, openid })
  console.log(token.openid, token.scope)
  const request = { appid, access_token, openid, page_size: 100 }
  const { surveys } = await call(SurveyService, SURVEY_SERVICE_URL, 'ListSurveys', request)
  for (const { id, title } of surveys) console.log(id, title)
} catch (error) {
  console.error(grpc.status[error.code], error.details) // the reason is in grpc-status-details-bin
  process.exitCode = 1
}
