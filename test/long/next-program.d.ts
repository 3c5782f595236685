/** `excludes`: its migration excludes the program that is built here. Returns the path of its command, for Node. */
export function makeNextProgram(folder: string, options?: { readonly excludes?: boolean }): string
