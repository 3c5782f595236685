// Starts the example app on its own: `BASE_URL=… APPID=… SECRET=… node examples/third-party-app/main.js`
import { startThirdPartyApp } from './app.js'

const { BASE_URL: baseUrl = 'http://127.0.0.1:8080', APPID: appid, SECRET: secret, PORT: port = '8090' } = process.env

if (!appid || !secret) {
  const redirectUri = `http://127.0.0.1:${port}/callback`
  console.error(
    `set APPID and SECRET, which this prints: survey-auth app create --name Harvest --redirect-uri ${redirectUri}`,
  )
  process.exit(2)
}
try {
  const { url } = await startThirdPartyApp({ baseUrl, appid, secret, port: Number(port) })
  console.log(`open ${url}`)
} catch (error) {
  if (error.code !== 'EADDRINUSE') throw error
  console.error(`port ${port} is in use: choose another one by PORT, and register its callback address for the app`)
  process.exit(1)
}
