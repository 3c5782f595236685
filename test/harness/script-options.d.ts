type Known = Readonly<Record<string, readonly [standard: unknown, what: string, allowed?: readonly string[]]>>

export function scriptOptions<K extends Known>(
  command: string,
  known: K,
  args?: string[],
): { [Name in keyof K]: K[Name][0] }
