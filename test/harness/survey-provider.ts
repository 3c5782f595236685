// A platform's SurveyProvider on grpc-js, which answers as a test tells it to: well, badly or never.
import { create, type DescMethod, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf'
import * as grpc from '@grpc/grpc-js'
import {
  type GetAnswerRequest,
  type GetAnswerResponseSchema,
  type GetProviderInfoResponseSchema,
  type GetSurveyRequest,
  type GetSurveyResponseSchema,
  type ListAnswersRequest,
  type ListAnswersResponseSchema,
  type ListSurveysRequest,
  type ListSurveysResponseSchema,
  type Owner,
  SurveyProvider,
} from '../../gen/surveyauth/provider/v1/survey_provider_pb.js'
import { type SurveySchema, SurveyState } from '../../gen/surveyauth/v1/survey_pb.js'
import { pathOf } from '../../services/rpc/dispatcher.js'

/** What a call is answered with: a message, bytes in its place, a status that is thrown, or nothing while it is pending. */
type Answer<Shape> = Shape | Buffer | Promise<Shape | Buffer>

/** How it answers; a test may change any of them at any time. */
export interface Behaviour {
  getProviderInfo: () => Answer<MessageInitShape<typeof GetProviderInfoResponseSchema>>
  listSurveys: (request: ListSurveysRequest) => Answer<MessageInitShape<typeof ListSurveysResponseSchema>>
  getSurvey: (request: GetSurveyRequest) => Answer<MessageInitShape<typeof GetSurveyResponseSchema>>
  listAnswers: (request: ListAnswersRequest) => Answer<MessageInitShape<typeof ListAnswersResponseSchema>>
  getAnswer: (request: GetAnswerRequest) => Answer<MessageInitShape<typeof GetAnswerResponseSchema>>
}

export interface StartedProvider {
  /** As SURVEY_PROVIDER_URL. */
  readonly url: string
  readonly behaviour: Behaviour
  /** Calls so far, without GetProviderInfo; `caller`: the names in its certificate. */
  readonly calls: {
    readonly method: string
    readonly owner: Owner | undefined
    readonly metadata: grpc.Metadata
    readonly caller: string
  }[]
  /** At once, as when it is killed. */
  kill(): Promise<void>
}

export interface ProviderOptions {
  /** `unix:/path` or `127.0.0.1:port`; a free port unless given. */
  readonly at?: string
  readonly credentials?: grpc.ServerCredentials
  /** Called for each call that its caller gives up. */
  readonly onCancelled?: () => void
}

/** A status to throw. */
export function status(code: keyof typeof grpc.status, details = 'says the provider'): Error {
  return Object.assign(new Error(details), { code: grpc.status[code], details })
}

export const never = () => new Promise<never>(() => undefined)

/** Surveys of one platform by the external_id of their owners. */
export function owning(surveys: Readonly<Record<string, readonly MessageInitShape<typeof SurveySchema>[]>>): Behaviour {
  const of = (owner: Owner | undefined) => surveys[owner?.externalId ?? ''] ?? []
  return {
    getProviderInfo: () => ({ name: 'ACME Surveys', version: '4.2' }),
    listSurveys({ owner, offset, limit }) {
      const found = of(owner).slice(Number(offset), Number(offset) + limit)
      const told = { externalId: owner?.externalId ?? '' }
      return {
        surveys: found.map((one) => ({ survey: summary(one), owner: told })),
        totalSize: BigInt(of(owner).length),
      }
    },
    getSurvey({ owner, surveyId }) {
      const survey = of(owner).find(({ id }) => id === surveyId)
      if (!survey) throw status('NOT_FOUND', 'no such survey')
      return { survey, owner: { externalId: owner?.externalId ?? '' } }
    },
    listAnswers: () => Promise.reject(status('UNIMPLEMENTED')),
    getAnswer: () => Promise.reject(status('UNIMPLEMENTED')),
  }
}

function summary({
  id = 0n,
  hash = '',
  title = '',
  state = SurveyState.UNSPECIFIED,
}: MessageInitShape<typeof SurveySchema>) {
  return { id, hash, title, state }
}

export async function startSurveyProvider(
  behaviour: Behaviour,
  {
    at = '127.0.0.1:0',
    credentials = grpc.ServerCredentials.createInsecure(),
    onCancelled = () => undefined,
  }: ProviderOptions = {},
): Promise<StartedProvider> {
  const server = new grpc.Server()
  const calls: StartedProvider['calls'] = []
  const told = { ...behaviour }
  for (const method of SurveyProvider.methods) serve(server, method, told, calls, onCancelled)
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(at, credentials, (error, bound) => (error ? reject(error) : resolve(bound)))
  })
  const scheme = credentials._isSecure() ? 'https' : 'http'
  return {
    url: at.startsWith('unix:') ? at : `${scheme}://127.0.0.1:${port}`,
    behaviour: told,
    calls,
    async kill() {
      server.forceShutdown()
    },
  }
}

function serve(
  server: grpc.Server,
  method: DescMethod,
  behaviour: Behaviour,
  calls: StartedProvider['calls'],
  onCancelled: () => void,
): void {
  const asIs = (bytes: Buffer) => bytes
  const definition: grpc.MethodDefinition<Buffer, Buffer> = {
    path: pathOf(method),
    requestStream: false,
    responseStream: false,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  }
  const answer = async ({ request: bytes, metadata }: grpc.ServerUnaryCall<Buffer, Buffer>, caller: string) => {
    const request = fromBinary(method.input, bytes) as never
    const { owner } = request as { owner?: Owner }
    if (method.localName !== 'getProviderInfo') calls.push({ method: method.name, owner, metadata, caller })
    const answered = await behaviour[method.localName as keyof Behaviour](request)
    return answered instanceof Buffer
      ? answered
      : Buffer.from(toBinary(method.output, create(method.output, answered as MessageInitShape<typeof method.output>)))
  }
  server.addService(
    { answer: definition },
    {
      answer(call: grpc.ServerUnaryCall<Buffer, Buffer>, callback: grpc.sendUnaryData<Buffer>) {
        call.on('cancelled', onCancelled)
        answer(call, call.getAuthContext().sslPeerCertificate?.subjectaltname ?? '').then(
          (bytes) => callback(null, bytes),
          (error) => callback(error),
        )
      },
    },
  )
}
