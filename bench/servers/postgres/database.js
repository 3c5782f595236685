// PostgreSQL for the peers, as durable as the product's: an answer's writes are on disk before it is sent.
import pg from 'pg'

const CONNECTIONS = 10 // as the product has by default

/** Parses bigints as numbers: every one here is a time. */
pg.types.setTypeParser(pg.types.builtins.INT8, Number)

export async function openDatabase(url, schema) {
  // Connections stay open, so that no round begins by opening them.
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS, idleTimeoutMillis: 0 })
  const settings = `SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit`
  const { rows } = await pool.query(settings)
  if (rows[0].fsync !== 'on' || rows[0].commit !== 'on') throw new Error('PostgreSQL is not as durable as demanded')
  await pool.query(schema)
  let session = pool
  let statements = 0
  /** Prepared once by each connection, under a name of its own. */
  const prepared = (text) => {
    const name = `statement_${++statements}`
    return (values) => session.query({ name, text, values })
  }
  return {
    /** A statement that returns its first row. */
    read(text) {
      const run = prepared(text)
      return async (...values) => (await run(values)).rows[0]
    },
    /** A statement that returns how many rows it changed. */
    write(text) {
      const run = prepared(text)
      return async (...values) => (await run(values)).rowCount
    },
    /** Runs `work` in one transaction. Statements of other callers meanwhile become part of it. */
    async together(work) {
      const connection = await pool.connect()
      session = connection
      try {
        await connection.query('BEGIN')
        const result = await work()
        await connection.query('COMMIT')
        return result
      } catch (error) {
        await connection.query('ROLLBACK')
        throw error
      } finally {
        session = pool
        connection.release()
      }
    },
  }
}
