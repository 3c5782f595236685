// How well colours can be told apart, by the formula of WCAG 2.2. Colours are written as #rrggbb.

/** `--ground` and `--surface` of style.css: what buttons stand on. */
export const GROUNDS = {
  light: { page: '#f3f5f4', card: '#ffffff' },
  dark: { page: '#101614', card: '#19211e' },
} as const

/** From 1 to 21. */
export function contrast(one: string, other: string): number {
  const [darker = 0, lighter = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b)
  return (lighter + 0.05) / (darker + 0.05)
}

/** The colour of the text of a button: white if that is legible, else black, which then is. */
export function textOn(colour: string): string {
  return contrast(colour, '#ffffff') >= 4.5 ? '#ffffff' : '#000000'
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(colour.slice(at, at + 2), 16) / 255
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}
