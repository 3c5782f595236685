// The most that a program on node:http can answer: the user endpoint's answer as a constant.
import { createServer } from 'node:http'
import { AVATAR, NICKNAME } from '../person.js'
import { serveParent } from './child.js'

const data = { openid: `o_${'x'.repeat(22)}`, nickname: NICKNAME, avatar: AVATAR }
const requestId = '00000000-0000-4000-8000-000000000000'
const body = `{"code":"OK","error":{"type":""},"data":${JSON.stringify(data)},"request_id":"${requestId}"}`
const headers = ['content-length', String(Buffer.byteLength(body)), 'content-type', 'application/json; charset=utf-8']

const server = createServer((_request, response) => {
  response.writeHead(200, headers)
  response.end(body)
})
serveParent(server)
