// Whose an answer is, and who must not be taken for whom.
import type { Owner } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { check } from './check.js'
import type { OwnerIds } from './fixtures.js'

/** That a record is of the owner who was asked for: it names one of their ids, and none that they do not have. @throws Wrong */
export function checkOwner(named: Owner | undefined, asked: OwnerIds, what: string): void {
  const ids = (['externalId', 'userId'] as const).map((id) => [named?.[id] ?? '', asked[id]] as const)
  const isNamed = ids.some(([found, expected]) => found !== '' && found === expected)
  const isOther = ids.some(([found, expected]) => found !== '' && expected !== '' && found !== expected)
  check(isNamed && !isOther, `the owner of ${what} is ${named ? JSON.stringify(idsIn(named)) : 'missing'}`)
}

function idsIn({ externalId, userId }: Owner): OwnerIds {
  return { externalId, userId }
}

const otherCase = (text: string) => (text === text.toUpperCase() ? text.toLowerCase() : text.toUpperCase())

/** Ids that a careless comparison takes for these; some may be the same, where there are no letters. */
export function idsLike({ externalId, userId }: OwnerIds): OwnerIds[] {
  const changes = [otherCase, (text: string) => `${text}\u0301`, (text: string) => `${text} `]
  return changes.map((change) => ({ externalId: externalId && change(externalId), userId: userId && change(userId) }))
}
