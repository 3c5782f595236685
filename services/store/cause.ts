/** Who causes a change and in which request: copied into the audit event. */
export interface Cause {
  readonly actor: 'app' | 'user' | 'operator' | 'survey_writer'
  /** UUID of the request. */
  readonly requestId: string
}
