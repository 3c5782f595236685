/** Whether an address names this machine only; `hostname` as in a URL or in HOST. */
export function isLoopback(hostname: string): boolean {
  return ['127.0.0.1', 'localhost', '::1', '[::1]'].includes(hostname)
}
