// Whose an answer is, and who must not be taken for whom.
import type { Owner } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { isOwner } from '../../services/survey/provider/received.js'
import { check } from './check.js'
import type { OwnerIds } from './fixtures.js'

/** That a record is of the owner who was asked for, in the eyes of survey-auth. @throws Wrong */
export function checkOwner(named: Owner | undefined, asked: OwnerIds, what: string): void {
  const { externalId, userId } = named ?? {}
  check(isOwner(named, asked), `the owner of ${what} is ${named ? JSON.stringify({ externalId, userId }) : 'missing'}`)
}

const otherCase = (text: string) => (text === text.toUpperCase() ? text.toLowerCase() : text.toUpperCase())

/** Ids that a careless comparison takes for these; some may be the same, where there are no letters. */
export function idsLike({ externalId, userId }: OwnerIds): OwnerIds[] {
  const changes = [otherCase, (text: string) => `${text}\u0301`, (text: string) => `${text} `]
  return changes.map((change) => ({ externalId: externalId && change(externalId), userId: userId && change(userId) }))
}
