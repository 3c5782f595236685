// Pictures that our pages show: what one is goes by its content.

const MAX_LOGO_BYTES = 48 * 1024 // with the rest of an app it fits into a request to AdminService

export interface Logo {
  readonly contentType: string
  readonly body: Uint8Array
}

/** @throws Error whose message says what is wrong with it, to be read after its name */
export function logoOf(body: Uint8Array): Logo {
  if (body.length > MAX_LOGO_BYTES) throw new Error(`is larger than ${MAX_LOGO_BYTES / 1024} KiB`)
  const contentType = imageType(Buffer.from(body))
  if (contentType === undefined) throw new Error('is not a PNG, WebP or SVG image')
  return { contentType, body }
}

/** What may stand before `<svg`; no text matches in two ways, so that a failure is found in one go. */
const BEFORE_SVG = '\\s|<\\?xml[^>]*>|<!--(?:(?!-->).)*-->|<!DOCTYPE[^>[]*>'
const SVG = new RegExp(`^\ufeff?(?:${BEFORE_SVG})*<svg[\\s>]`, 's')

function imageType(bytes: Buffer): string | undefined {
  const start = bytes.subarray(0, 12).toString('latin1')
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (/^RIFF.{4}WEBP$/s.test(start)) return 'image/webp'
  return SVG.test(bytes.toString()) ? 'image/svg+xml' : undefined
}
