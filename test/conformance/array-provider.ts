// A SurveyProvider over an array, right in all that its contract says, served by plain grpc-js: what others write.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { create, type DescMessage, type DescMethod, fromBinary, type MessageShape, toBinary } from '@bufbuild/protobuf'
import { type Timestamp, timestampFromMs, timestampMs } from '@bufbuild/protobuf/wkt'
import { Code } from '@connectrpc/connect'
import * as grpc from '@grpc/grpc-js'
import { onTestFinished } from 'vitest'
import {
  GetAnswerResponseSchema,
  GetProviderInfoResponseSchema,
  GetSurveyResponseSchema,
  ListAnswersResponseSchema,
  ListSurveysResponseSchema,
  type Owner,
  ProviderCapability,
  SurveyProvider,
} from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type Answer, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import {
  type Survey,
  SurveyScene,
  SurveySchema,
  SurveyState,
  SurveySummarySchema,
} from '../../gen/surveyauth/v1/survey_pb.js'
import type { TlsMaterial } from '../../services/rpc/listener.js'

/** The methods of a provider; each may be replaced by a wrong one. */
export type Methods = {
  -readonly [name in keyof typeof SurveyProvider.method]: (
    request: MessageShape<(typeof SurveyProvider.method)[name]['input']>,
  ) =>
    | MessageShape<(typeof SurveyProvider.method)[name]['output']>
    | Promise<MessageShape<(typeof SurveyProvider.method)[name]['output']>>
}

/** Makes a call fail. */
export class Refusal extends Error {
  constructor(
    readonly code: Code,
    message: string,
  ) {
    super(message)
  }
}

export interface Held {
  readonly externalId: string
  readonly survey: Survey
  readonly answers: readonly Answer[]
}

const START_MS = Date.UTC(2026, 0, 1)
const ANSWERS = 23
const NUMBERS = { 'u-1': [1001, 1002, 1004, 1007, 1010, 1011, 1012, 1020, 1021], 'u-2': [1003, 1005] } as const

function surveyOf(id: number): Survey {
  const options = ['o-1', 'o-2'].map((option) => ({ id: option, text: `Option ${option} 很好` }))
  const questions = [
    { id: 'q-1', index: 1, type: 'radio', title: 'Which?', options },
    { id: 'q-2', index: 2, type: 'star', title: 'How many?', starNum: 5, starBeginNum: 1 },
    { id: 'q-3', index: 3, type: 'matrix_radio', title: 'Each?', options, subTitles: [{ id: 's-1', text: 'Row' }] },
  ]
  return create(SurveySchema, {
    id: BigInt(id),
    hash: id.toString(16).padStart(4, '0'),
    scene: SurveyScene.SURVEY,
    title: `Survey ${id} 问卷`,
    state: SurveyState.COLLECTING,
    createTime: timestampFromMs(START_MS),
    updateTime: timestampFromMs(START_MS),
    pages: [{ id: 'p-1', index: '1', questions }],
  })
}

function answerOf(surveyId: number, id: number): Answer {
  const questions = [
    { id: 'q-1', type: 'radio', options: [{ id: 'o-2', text: 'Option o-2 很好' }] },
    { id: 'q-2', type: 'star', text: String(id % 5) },
    { id: 'q-3', type: 'matrix_radio', groups: [{ id: 's-1', text: 'Row', options: [{ id: 'o-1', text: 'Option' }] }] },
  ]
  return create(AnswerSchema, {
    answerId: BigInt(id),
    surveyId: BigInt(surveyId),
    respondentId: `r-${id % 7}`,
    startTime: timestampFromMs(START_MS + id * 60_000),
    endTime: timestampFromMs(START_MS + id * 60_000 + 30_000),
    pages: [{ id: 'p-1', questions }],
  })
}

export const surveys: readonly Held[] = Object.entries(NUMBERS).flatMap(([externalId, numbers]) =>
  numbers.map((id, at) => ({
    externalId,
    survey: surveyOf(id),
    answers: at === 0 ? Array.from({ length: ANSWERS }, (_, n) => answerOf(id, n + 1)) : [],
  })),
)

export const fixtures = {
  owners: Object.entries(NUMBERS).map(([external_id, numbers]) => ({ external_id, surveys: numbers })),
  missing_owner: { external_id: 'nobody' },
  missing_survey: 999_999,
  answers: { survey_id: NUMBERS['u-1'][0], count: ANSWERS },
}

export function ownerOf({ externalId }: Held): Owner {
  return { $typeName: 'surveyauth.provider.v1.Owner', externalId, userId: '' }
}

export function require(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Refusal(Code.InvalidArgument, what)
}

/** The survey of the owner who asks. */
export function owned(owner: Owner | undefined, surveyId: bigint): Held {
  require(owner !== undefined && surveyId > 0n, 'owner and survey_id are needed')
  const held = surveys.find(({ externalId, survey }) => survey.id === surveyId && externalId === owner.externalId)
  if (!held) throw new Refusal(Code.NotFound, `there is no survey ${surveyId}`)
  return held
}

export function isBetween(
  time: Timestamp | undefined,
  since: Timestamp | undefined,
  until: Timestamp | undefined,
): boolean {
  const ms = time ? timestampMs(time) : 0
  return (!since || ms >= timestampMs(since)) && (!until || ms < timestampMs(until))
}

export const right: Methods = {
  getProviderInfo: () =>
    create(GetProviderInfoResponseSchema, {
      name: 'Array Surveys',
      version: '4.2',
      capabilities: [ProviderCapability.ANSWERS],
    }),
  listSurveys({ owner, offset, limit }) {
    require(owner !== undefined && offset >= 0n && limit >= 1 && limit <= 100, 'out of bounds')
    const mine = surveys.filter(({ externalId }) => externalId === owner.externalId)
    return create(ListSurveysResponseSchema, {
      totalSize: BigInt(mine.length),
      surveys: mine.slice(Number(offset), Number(offset) + limit).map((held) => {
        const { id, hash, title, state } = held.survey
        return { survey: create(SurveySummarySchema, { id, hash, title, state }), owner: ownerOf(held) }
      }),
    })
  },
  getSurvey({ owner, surveyId }) {
    const held = owned(owner, surveyId)
    return create(GetSurveyResponseSchema, { survey: held.survey, owner: ownerOf(held) })
  },
  listAnswers({ owner, surveyId, afterAnswerId, limit, since, until }) {
    require(limit >= 1 && limit <= 1000 && afterAnswerId >= 0n, 'out of bounds')
    const held = owned(owner, surveyId)
    const between = held.answers.filter(({ endTime }) => isBetween(endTime, since, until))
    return create(ListAnswersResponseSchema, {
      answers: between.filter(({ answerId }) => answerId > afterAnswerId).slice(0, limit),
      totalSize: BigInt(between.length),
      owner: ownerOf(held),
    })
  },
  getAnswer({ owner, surveyId, answerId }) {
    require(answerId > 0n, 'answer_id is needed')
    const held = owned(owner, surveyId)
    const answer = held.answers.find((one) => one.answerId === answerId)
    if (!answer) throw new Refusal(Code.NotFound, 'there is no such answer')
    return create(GetAnswerResponseSchema, { answer, owner: ownerOf(held) })
  },
}

const unimplemented = () => {
  throw new Refusal(Code.Unimplemented, 'no answers here')
}

/** What a provider does differently that has no answers. */
export const withoutAnswers: Partial<Methods> = {
  getProviderInfo: () => create(GetProviderInfoResponseSchema, { name: 'Array Surveys', version: '4.2' }),
  listAnswers: unimplemented,
  getAnswer: unimplemented,
}

interface Serving {
  /** Told of calls that nobody waits for any longer. */
  readonly onCancelled?: () => void
  /** Over mTLS on a port then, else on a socket. */
  readonly tls?: TlsMaterial
}

/** Serves them until the test is over; returns their address. */
export async function serveProvider(methods: Methods, { onCancelled = () => {}, tls }: Serving = {}): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'survey-auth-kit-'))
  const server = new grpc.Server()
  const handlers = SurveyProvider.methods.map((method) => [method.localName, handlerOf(method, methods, onCancelled)])
  server.addService(definition, Object.fromEntries(handlers))
  onTestFinished(() => {
    server.forceShutdown()
    rmSync(folder, { recursive: true })
  })
  const address = tls ? 'localhost:0' : `unix:${path.join(folder, 'provider.sock')}`
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(address, credentialsOf(tls), (error, bound) => (error ? reject(error) : resolve(bound)))
  })
  return tls ? `https://localhost:${port}` : address
}

function credentialsOf(tls: TlsMaterial | undefined): grpc.ServerCredentials {
  if (!tls) return grpc.ServerCredentials.createInsecure()
  const pair = { cert_chain: Buffer.from(tls.cert), private_key: Buffer.from(tls.key) }
  return grpc.ServerCredentials.createSsl(Buffer.from(tls.ca), [pair], true)
}

const definition: grpc.ServiceDefinition = Object.fromEntries(
  SurveyProvider.methods.map((method) => [
    method.localName,
    {
      path: `/${SurveyProvider.typeName}/${method.name}`,
      requestStream: false,
      responseStream: false,
      requestSerialize: (message: MessageShape<DescMessage>) => Buffer.from(toBinary(method.input, message)),
      requestDeserialize: (bytes: Buffer) => fromBinary<DescMessage>(method.input, bytes),
      responseSerialize: (message: MessageShape<DescMessage>) =>
        Buffer.from(toBinary<DescMessage>(method.output, message)),
      responseDeserialize: (bytes: Buffer) => fromBinary<DescMessage>(method.output, bytes),
    },
  ]),
)

function handlerOf(
  method: DescMethod,
  methods: Methods,
  onCancelled: () => void,
): grpc.handleUnaryCall<never, unknown> {
  const answer = methods[method.localName as keyof Methods] as (request: unknown) => unknown // of the same method
  return async (call, callback) => {
    let isAnswered = false
    call.on('cancelled', () => isAnswered || onCancelled())
    try {
      const response = await answer(call.request)
      isAnswered = true
      callback(null, response)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      isAnswered = true
      callback({ code: error.code as number, details: error.message })
    }
  }
}
