// What may make users take one app for another, or for this service: said on stderr, for the operator to judge.
import { texts } from '../../gateway/pages/texts.js'
import type { App } from '../../gen/surveyauth/v1/admin_service_pb.js'

/** Scripts whose letters look alike. Each may be used, also beside another word; not within one word. */
const ALIKE = ['Latin', 'Cyrillic', 'Greek', 'Armenian', 'Cherokee', 'Coptic'] as const

const scripts = ALIKE.map((name) => ({ name, letter: new RegExp(`\\p{Script=${name}}`, 'u') }))
const WORDS = /[\p{L}\p{M}]+/gu

const OWN_NAMES = ['survey-auth', ...Object.values(texts).map(({ serviceName }) => serviceName)].map(folded)

export function nameWarnings(name: string, others: readonly Pick<App, 'appid' | 'name'>[]): string[] {
  const warnings = (name.match(WORDS) ?? []).flatMap(mixture)
  if (OWN_NAMES.includes(folded(name)))
    warnings.push('this service has that name itself: users may take the app for it')
  const namesakes = others.filter((other) => folded(other.name) === folded(name)).map(({ appid }) => appid)
  if (namesakes.length > 0) {
    const whose = namesakes.slice(0, 3).join(', ') + (namesakes.length > 3 ? ', …' : '')
    warnings.push(`another app has that name (${whose}): users can tell them apart by callback host and appid only`)
  }
  return warnings.map((warning) => `warning: ${warning}`)
}

/** What to say of a word with letters of several of those scripts, naming those of the rarest; nothing of any other. */
function mixture(word: string): string[] {
  const found = scripts
    .map(({ name, letter }) => ({ name, letters: [...word.normalize('NFC')].filter((one) => letter.test(one)) }))
    .filter(({ letters }) => letters.length > 0)
    .sort((a, b) => b.letters.length - a.letters.length)
  const rarest = found.slice(1).at(-1)
  if (!rarest) return []
  const odd = [...new Set(rarest.letters)].map((letter) => `${letter} (U+${hex(letter)}, ${rarest.name})`)
  return [`letters in "${word}" look like others and are not: ${odd.join(', ')} among ${found[0]?.name}`]
}

function hex(letter: string): string {
  return (letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
}

/** Equal for names that differ by case, width or spaces alone. */
function folded(name: string): string {
  return name.normalize('NFKC').toLowerCase().replaceAll(/\s+/g, ' ').trim()
}
