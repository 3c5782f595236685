// The people of the crash tests: one app, for each person a user with two surveys, and what they all know.
import { Person } from './person.js'

export const CALLBACK = 'https://app.example/callback'

/** Settings under which a person knows exactly what must be good. */
export const CROWD_ENV = {
  CODE_TTL_SECONDS: '600',
  CODE_REPLAY_GRACE_SECONDS: '600', // a replay is then refused and ends nothing
  ACCESS_TOKEN_OVERLAP_SECONDS: '864000', // earlier tokens stay good, so that each acknowledged one can be checked
  MAX_GRANTS_PER_USER_AND_APP: '200',
  MAX_LIVE_CODES_PER_USER_AND_APP: '1000',
}

const SURVEYS = [{ title: 'Lunch' }, { title: 'Travel' }]

/**
 * Signed-in people. `rpc(method, message)` makes an operator's call; `sendOf(n)` returns the function that sends requests of
 * person n, from 0 on, and of the app's server on their behalf.
 */
export async function createCrowd(count, { rpc, sendOf }) {
  const { app, secret } = await rpc('AdminService/CreateApp', { name: 'Crash', redirectUris: [CALLBACK] })
  const people = []
  for (let i = 0; i < count; i += 1) {
    const username = `person${i}`
    const password = `password of ${username}`
    const { user } = await rpc('AdminService/CreateUser', { username, password, nickname: username, avatar: '' })
    const imported = await rpc('SurveyService/ImportSurveys', { ownerUserId: user.userId, surveys: SURVEYS })
    const surveyIds = imported.surveys.map(({ id }) => Number(id))
    const registered = { appid: app.appid, secret, redirectUri: CALLBACK }
    people.push(new Person({ send: sendOf(i), ...registered, username, password, surveyIds }))
  }
  for (const person of people) await person.signIn()
  return people
}

/** Checks the service against what every person knows; `recent`: only recent changes, and a sample of the rest. */
export async function checkCrowd(people, failures, what) {
  const counts = await Promise.all(people.map((person) => person.check(what, failures)))
  return counts.reduce((sum, count) => sum + count, 0)
}

/** What everybody did, by outcome: `exchange OK`, `refresh 503`, … */
export function countsOf(people) {
  const counts = {}
  for (const person of people) {
    for (const [name, count] of Object.entries(person.counts)) counts[name] = (counts[name] ?? 0) + count
  }
  return counts
}

/** `p50 12 ms, p95 40 ms, longest 55 ms`. */
export function spread(durationsMs) {
  const sorted = [...durationsMs].sort((a, b) => a - b)
  const at = (share) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0)
  return `p50 ${at(0.5)} ms, p95 ${at(0.95)} ms, longest ${at(1)} ms`
}
