/** What the system calls a failure, `ENOENT` for example; `otherwise` of one that has no such name. */
export function errorCode(error: unknown, otherwise: string): string {
  return error instanceof Error && 'code' in error ? String(error.code) : otherwise
}
