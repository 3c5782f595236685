// SurveyService in this process, with its database and its janitor.
import type { Client } from '@connectrpc/connect'
import { SurveyProvider } from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { SurveyService } from '../../gen/surveyauth/v1/survey_service_pb.js'
import type { TokenService } from '../../gen/surveyauth/v1/token_service_pb.js'
import type { Dispatcher } from '../../services/rpc/dispatcher.js'
import type { AnswerDeps, SurveyDeps } from '../../services/survey/deps.js'
import { startJanitor } from '../../services/survey/janitor.js'
import { createProviderHandlers } from '../../services/survey/provider-service.js'
import { createReadRecorder } from '../../services/survey/read-recorder.js'
import { createRespondents } from '../../services/survey/respondents.js'
import { createSurveyHandlers } from '../../services/survey/survey-service.js'
import type { Config } from '../config.js'
import { packageVersion } from '../package-root.js'
import type { Observers } from './observers.js'
import { absentUnless, begun, janitorTimes, type StorePart } from './part.js'
import { openSurveyStore } from './stores.js'
import type { TimeAndChance } from './time-and-chance.js'

/** Opens the database, creating and migrating it if need be, and registers the handlers. `token` is called as `survey`. */
export async function openSurveyPart(
  config: Config,
  dispatcher: Dispatcher,
  clock: TimeAndChance,
  token: Client<typeof TokenService>,
  observers: Observers,
): Promise<StorePart> {
  const database = await openSurveyDatabase(config, clock, observers)
  const { store } = database.deps
  dispatcher
    .register(SurveyService, createSurveyHandlers({ ...database.deps, token }))
    .register(SurveyProvider, createProviderHandlers({ store }, packageVersion()))
  return database
}

export interface SurveyDatabase extends StorePart {
  readonly deps: SurveyDeps & Omit<AnswerDeps, 'answers' | 'token'>
}

/** The database of surveys, answers, and what is audited about them. */
export async function openSurveyDatabase(
  config: Config,
  clock: TimeAndChance,
  observers: Observers,
): Promise<SurveyDatabase> {
  const store = await openSurveyStore(config, observers.onCommit)
  const reads = createReadRecorder(store)
  return {
    deps: { store, reads, respondents: createRespondents(store, clock.randomBytes), now: clock.now },
    store: 'survey',
    connections: () => store.connections?.(),
    startJanitor: () => {
      const observer = observers.janitor('survey')
      return begun(startJanitor({ ...observer, ...janitorTimes(config), ...clock, store, reads }), observer.onError)
    },
    absent: () => absentUnless('survey database', store.ping()),
    async close() {
      await reads.flush().catch(() => undefined) // ids only: the events are written
      await store.close()
    },
  }
}
