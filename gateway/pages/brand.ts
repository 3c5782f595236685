// The platform's face as an operator writes it: what it may hold, and what is wrong with one. look.ts shows it.
import { z } from 'zod'
import { contrast, GROUNDS } from './colours.js'
import type { Language } from './language.js'
import { placesIn, replaceableTexts } from './texts.js'

const MIN_CONTRAST = 3 // of a button with what it stands on: WCAG 2.2, 1.4.11

export interface Logo {
  readonly contentType: string
  readonly body: Uint8Array
}

export type Brand = z.output<ReturnType<typeof brandJson>>

/** What is in the file, or all that is wrong with it. `readLogo` reads the logo by its name. */
export function readBrand(
  json: unknown,
  readLogo: (name: string) => Logo,
): { readonly brand: Brand } | { readonly faults: readonly string[] } {
  const { data, error } = brandJson(readLogo).safeParse(json)
  if (data) return { brand: data }
  return {
    faults: error.issues.map(({ path, message }) => (path.length === 0 ? message : `${path.join('.')}: ${message}`)),
  }
}

const brandJson = (readLogo: (name: string) => Logo) =>
  z.strictObject({
    name: inEach(line(60), 'a name of 1 to 60 characters').optional(),
    logo: z
      .string()
      .transform((name, { addIssue }) => {
        try {
          return readLogo(name)
        } catch (error) {
          addIssue(error instanceof Error ? error.message : 'cannot be read')
          return z.NEVER
        }
      })
      .optional(),
    accent: accent.optional(),
    links: z.strictObject({ help: link, privacy: link, terms: link, support: link }).partial().optional(),
    texts: z
      .strictObject({ zh: textsIn('zh'), en: textsIn('en') })
      .partial()
      .optional(),
  })

function line(maxLength: number) {
  const isLine = (text: string) =>
    text !== '' && text.length <= maxLength && text.isWellFormed() && !/\p{Cc}/u.test(text)
  const error = `must be 1 to ${maxLength} characters, and none of them a control character`
  return z.string().refine(isLine, { error, abort: true })
}

/** One for both languages, or one for each. */
function inEach(value: z.ZodType<string>, what: string) {
  const error = `must be ${what}, or {"zh": …, "en": …} with one each`
  return z
    .union([value, z.strictObject({ zh: value, en: value })], { error })
    .transform((given) => (typeof given === 'string' ? { zh: given, en: given } : given))
}

const isLink = (text: string) => /^(https:\/\/|mailto:)[!-~]{1,2000}$/.test(text) && URL.canParse(text)
const link = inEach(z.string().refine(isLink, { abort: true }), 'an address that begins with https:// or mailto:')

const colour = z.string().refine((text) => /^#[0-9a-f]{6}$/i.test(text), { abort: true })

/** One for both schemes, or one for each. */
const accent = z
  .union([colour, z.strictObject({ light: colour, dark: colour })], {
    error: 'must be a colour like #0f6b5c, or {"light": …, "dark": …} with one each',
  })
  .transform((given) => (typeof given === 'string' ? { light: given, dark: given } : given))
  .superRefine((given, { addIssue }) => {
    for (const scheme of ['light', 'dark'] as const)
      for (const [place, ground] of Object.entries(GROUNDS[scheme])) {
        const found = contrast(given[scheme], ground)
        const message = `${given[scheme]} has a contrast of ${found.toFixed(2)} with the ${scheme} ${place}, ${ground}; it must have ${MIN_CONTRAST}`
        if (found < MIN_CONTRAST) addIssue({ code: 'custom', message })
      }
  })

/** What stands in the place of our texts, by their keys. */
function textsIn(language: Language) {
  const ours = replaceableTexts(language)
  return z.record(z.string(), line(1000)).superRefine((given, { addIssue }) => {
    for (const [key, text] of Object.entries(given)) {
      const message = faultOfText(ours.get(key), text)
      if (message !== undefined) addIssue({ code: 'custom', path: [key], message })
    }
  })
}

function faultOfText(original: string | undefined, text: string): string | undefined {
  if (original === undefined) return 'is not the key of a text'
  const [wanted, found] = [placesIn(original), placesIn(text)]
  if (wanted === found) return undefined
  return wanted === '' ? `must not hold ${found}` : `must hold ${wanted} as the text that it replaces does`
}
