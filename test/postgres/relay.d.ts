export class Relay {
  private constructor()
  static open(toPort: number): Promise<Relay>
  readonly accepted: number
  readonly port: number
  silence(): void
  forgetConnections(): void
  resume(): void
  close(): void
}
