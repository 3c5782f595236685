/**
 * What no database could do, such as to go on after a position that no list has. The message is for the developer of the caller:
 * lower case, no full stop, no secrets.
 */
export class StoreRefused extends Error {
  override readonly name = 'StoreRefused'
}
