// The platform as a process of its own:
//   RPC_URL=unix:data/rpc.sock PORT=8070 node examples/platform/main.js
// and over mTLS, with a certificate that RPC_CALLERS gives the role sign_in:
//   RPC_URL=https://token.internal:9443 RPC_TLS_CA=ca.pem RPC_TLS_CERT=platform.pem RPC_TLS_KEY=platform.key PORT=8070 node …
import { startPlatform } from './platform.js'

const { RPC_URL: url = 'unix:data/rpc.sock', RPC_TLS_CA: ca, RPC_TLS_CERT: cert, RPC_TLS_KEY: key, PORT } = process.env
const platform = await startPlatform({ rpc: { url, ca, cert, key }, port: Number(PORT ?? 8070) })
console.log(`SIGN_IN_URL=${platform.url}/sign-in`)
