// A process that opens the compiled program's token store and is called by messages: stands in for another server.
import { openSqliteTokenStore } from '../../dist/services/token/store/sqlite/sqlite-token-store.js'

const store = openSqliteTokenStore({ file: process.argv[2] ?? '' })
process.on('message', async ({ id, method, args }) => {
  try {
    process.send?.({ id, result: await store[method](...args) })
  } catch (error) {
    process.send?.({ id, error: String(error) })
  }
})
process.send?.({ id: 0, result: 'open' })
