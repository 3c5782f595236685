// What a shell must be given, in commands that are shown to be pasted.

/** Quoted where a shell would not take it as it is. */
export function inShell(text: string): string {
  return /^[\w./:@+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

/** The same, and not taken for an option. */
export function asArgument(text: string): string {
  return text.startsWith('-') ? `-- ${inShell(text)}` : inShell(text)
}
