/** A copy cannot be made; nothing was written. The message says why. */
export class CopyRefused extends Error {
  override readonly name = 'CopyRefused'

  constructor(
    text: string,
    /** What the operator can do about it. */
    readonly hint?: string,
  ) {
    super(text)
  }
}
