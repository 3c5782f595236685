// A strict reader of the little HTML our pages consist of: tags, quoted attributes, text. Anything it does not
// understand is an error, so that broken markup fails a test instead of being repaired as a browser would.

export interface Button {
  readonly name: string
  readonly value: string
  readonly label: string
}

export interface Form {
  readonly method: string
  /** As written; resolve it against the page's address. */
  readonly action: string
  /** What is submitted besides the button: hidden, text and password inputs. */
  readonly fields: Readonly<Record<string, string>>
  readonly buttons: readonly Button[]
}

export interface Link {
  readonly href: string
  readonly text: string
}

export interface Html {
  readonly title: string
  readonly lang: string
  readonly forms: readonly Form[]
  readonly links: readonly Link[]
  /** Visible text, white space collapsed. */
  readonly text: string
  readonly tags: readonly Tag[]
}

export interface Tag {
  readonly name: string
  readonly attributes: Readonly<Record<string, string>>
}

type Piece = { readonly kind: 'open' | 'close'; readonly tag: Tag } | { readonly kind: 'text'; readonly text: string }

const RAW_TEXT = new Set(['script', 'style'])
const INVISIBLE = new Set(['head', 'script', 'style', 'title', 'template'])
const VOID = new Set(['meta', 'link', 'input', 'br', 'img', 'hr'])

export function readHtml(source: string): Html {
  const pieces = readPieces(source)
  const tags = pieces.flatMap((piece) => (piece.kind === 'open' ? [piece.tag] : []))
  return {
    title: textInside(pieces, 'title')[0]?.text ?? '',
    lang: tags.find((tag) => tag.name === 'html')?.attributes.lang ?? '',
    forms: readForms(pieces),
    links: textInside(pieces, 'a').map(({ tag, text }) => ({ href: tag.attributes.href ?? '', text })),
    text: visibleText(pieces),
    tags,
  }
}

function readForms(pieces: readonly Piece[]): Form[] {
  const forms: Form[] = []
  let start = -1
  pieces.forEach((piece, at) => {
    if (piece.kind === 'text' || piece.tag.name !== 'form') return
    if (piece.kind === 'open') {
      if (start >= 0) throw new Error('a form inside a form')
      start = at
      return
    }
    forms.push(readForm(pieces.slice(start, at)))
    start = -1
  })
  if (start >= 0) throw new Error('a form without an end')
  return forms
}

function readForm(pieces: readonly Piece[]): Form {
  const [head] = pieces
  if (head?.kind !== 'open') throw new Error('a form ends that never began')
  const fields: Record<string, string> = {}
  for (const piece of pieces) {
    if (piece.kind !== 'open' || piece.tag.name !== 'input') continue
    const { name, value = '', type = 'text' } = piece.tag.attributes
    if (name === undefined || type === 'submit') throw new Error('an input without a name, or one used as a button')
    if (name in fields) throw new Error(`two inputs named ${name}`)
    fields[name] = value
  }
  const buttons = textInside(pieces, 'button').map(({ tag, text }) => ({
    name: tag.attributes.name ?? '',
    value: tag.attributes.value ?? '',
    label: text,
  }))
  return {
    method: (head.tag.attributes.method ?? 'get').toUpperCase(),
    action: head.tag.attributes.action ?? '',
    fields,
    buttons,
  }
}

function textInside(pieces: readonly Piece[], name: string): { tag: Tag; text: string }[] {
  const found: { tag: Tag; text: string }[] = []
  pieces.forEach((piece, at) => {
    if (piece.kind !== 'open' || piece.tag.name !== name) return
    const end = pieces.findIndex((other, i) => i > at && other.kind === 'close' && other.tag.name === name)
    if (end < 0) throw new Error(`<${name}> without an end`)
    const inside = pieces.slice(at, end).flatMap((other) => (other.kind === 'text' ? [other.text] : []))
    found.push({ tag: piece.tag, text: collapse(inside.join('')) })
  })
  return found
}

function visibleText(pieces: readonly Piece[]): string {
  const open: string[] = []
  const texts: string[] = []
  for (const piece of pieces) {
    if (piece.kind === 'open' && !VOID.has(piece.tag.name)) open.push(piece.tag.name)
    else if (piece.kind === 'close') open.pop()
    else if (piece.kind === 'text' && !open.some((name) => INVISIBLE.has(name))) texts.push(piece.text)
  }
  return collapse(texts.join(' '))
}

const collapse = (text: string) => text.replaceAll(/\s+/g, ' ').trim()

function readPieces(source: string): Piece[] {
  const pieces: Piece[] = []
  const open: string[] = []
  let at = 0
  while (at < source.length) {
    const raw = open.at(-1)
    if (raw !== undefined && RAW_TEXT.has(raw) && !source.startsWith(`</${raw}`, at)) {
      const end = find(source, `</${raw}`, at)
      pieces.push({ kind: 'text', text: source.slice(at, end) })
      at = end
    } else if (source.startsWith('<!--', at)) {
      at = find(source, '-->', at) + 3
    } else if (source.startsWith('<!', at)) {
      at = find(source, '>', at) + 1
    } else if (source[at] === '<') {
      const { piece, end, isSelfClosing } = readTag(source, at)
      pieces.push(piece)
      at = end
      if (piece.kind === 'close') {
        const expected = open.pop()
        if (expected !== piece.tag.name) throw new Error(`</${piece.tag.name}> where </${expected}> was due`)
      } else if (!isSelfClosing && !VOID.has(piece.tag.name)) {
        open.push(piece.tag.name)
      } else if (!VOID.has(piece.tag.name)) {
        pieces.push({ kind: 'close', tag: piece.tag })
      }
    } else {
      const end = source.indexOf('<', at)
      pieces.push({ kind: 'text', text: decodeEntities(source.slice(at, end < 0 ? undefined : end)) })
      at = end < 0 ? source.length : end
    }
  }
  if (open.length > 0) throw new Error(`<${open.join('>, <')}> without an end`)
  return pieces
}

function find(source: string, wanted: string, from: number): number {
  const at = source.indexOf(wanted, from)
  if (at < 0) throw new Error(`${wanted} is missing after ${JSON.stringify(source.slice(from, from + 40))}`)
  return at
}

function readTag(
  source: string,
  start: number,
): { piece: Piece & { kind: 'open' | 'close' }; end: number; isSelfClosing: boolean } {
  const kind = source[start + 1] === '/' ? 'close' : 'open'
  let at = start + (kind === 'close' ? 2 : 1)
  const name = take(/[A-Za-z][A-Za-z0-9-]*/y)
  if (name === '') throw new Error(`a stray < before ${JSON.stringify(source.slice(start, start + 40))}`)
  const attributes: Record<string, string> = {}
  for (;;) {
    take(/\s*/y)
    const end = take(/\/?>/y)
    if (end !== '') {
      return { piece: { kind, tag: { name: name.toLowerCase(), attributes } }, end: at, isSelfClosing: end === '/>' }
    }
    const attribute = take(/[A-Za-z_:][A-Za-z0-9_:.-]*/y)
    if (attribute === '') throw new Error(`a malformed <${name}>: ${JSON.stringify(source.slice(start, start + 80))}`)
    if (attribute in attributes) throw new Error(`<${name}> has ${attribute} twice`)
    attributes[attribute] = ''
    if (take(/\s*=\s*/y) === '') continue
    const quoted = take(/"[^"]*"|'[^']*'/y)
    if (quoted === '') throw new Error(`the value of ${attribute} in <${name}> is not quoted`)
    attributes[attribute] = decodeEntities(quoted.slice(1, -1))
  }

  function take(pattern: RegExp): string {
    pattern.lastIndex = at
    const found = pattern.exec(source)?.[0] ?? ''
    at += found.length
    return found
  }
}

const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
  middot: '·',
  hellip: '…',
  rarr: '→',
  copy: '©',
}

function decodeEntities(text: string): string {
  return text.replaceAll(
    /&(?:#x([0-9a-f]+)|#([0-9]+)|([a-z]+));/gi,
    (whole, hex?: string, decimal?: string, name = '') => {
      if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16))
      if (decimal !== undefined) return String.fromCodePoint(Number(decimal))
      const known = ENTITIES[name]
      if (known === undefined) throw new Error(`the entity ${whole} is not one our pages use`)
      return known
    },
  )
}
