// A process with the token store of the compiled program open, called by messages: what another server on the file is.
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
