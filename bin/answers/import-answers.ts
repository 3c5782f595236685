// Sends the answers in a file to SurveyService.ImportAnswers, and says what has become of them.
import { Code, ConnectError } from '@connectrpc/connect'
import { ANSWER_MEMBERS, answerFromJson } from '../../gateway/api/answer-from-json.js'
import { type Answer, AnswerSchema } from '../../gen/surveyauth/v1/answer_pb.js'
import { compileRules, violationInWords } from '../../services/rpc/validation.js'
import { refusalOf, toDraft } from '../../services/survey/import-answers.js'
import type { Json } from '../commands/command.js'
import { asSurveyOperator, type SurveyOperator } from '../compose/operator.js'
import { CommandError, isUnanswered } from '../exit.js'
import { inBatches, nextOf, noticeInterruption, printTotals, Refusals, soFar, type Tally } from '../import-file.js'
import { message, progress } from '../output.js'
import { jsonLines, open, type RecordRead } from '../records.js'

export interface ImportOptions extends Json {
  readonly survey: number
  readonly dryRun?: true
  readonly from: number
  readonly report?: string
}

/** Answers of one call, which is one transaction: enough to share its cost, few enough for the time that a call has. */
const MAX_BATCH = 500
const MAX_BATCH_BYTES = 3_500_000
/** Of an answer as JSON, which takes several times what is stored. */
const MAX_LINE_BYTES = 4 * 1024 * 1024

type Survey = SurveyOperator['survey']

interface Read extends Pick<RecordRead, 'line' | 'share'> {
  readonly read: { readonly answer: Answer; readonly bytes: number } | { readonly fault: string }
}

interface AnswerTally extends Tally {
  stored: number
  unchanged: number
}

const BATCH = {
  maxItems: MAX_BATCH,
  maxBytes: MAX_BATCH_BYTES,
  sizeOf: ({ read }: Read) => ('fault' in read ? 0 : read.bytes),
}

export async function importAnswers(file: string, options: ImportOptions): Promise<void> {
  const { survey: surveyId, from } = options
  const tally: AnswerTally = { read: 0, stored: 0, unchanged: 0, refused: 0 }
  const unread = new Set<string>()
  const batches = inBatches(answers(jsonLines(open(file), MAX_LINE_BYTES), BigInt(surveyId), unread), from, BATCH)
  const refusals = new Refusals(options.report)
  const interruption = noticeInterruption()
  const say = progress()
  let nextLine = from
  try {
    await asSurveyOperator(async ({ survey }) => {
      await survey.exportAnswers({ surveyId: BigInt(surveyId), pageSize: 1 }) // that there is such a survey
      for (let batch = await nextOf(batches, file); batch; ) {
        const next = nextOf(batches, file) // read while this one is stored
        next.catch(() => undefined)
        await storeBatch(survey, batch, options, tally, refusals)
        nextLine = (batch.at(-1)?.line ?? nextLine) + 1
        say(soFar(tally), interruption.aborted ? 1 : batch.at(-1)?.share)
        batch = interruption.aborted ? undefined : await next
      }
    })
  } catch (error) {
    if (nextLine > from) message(`stored up to here: go on with --from ${nextLine}`)
    if (isUnanswered(error))
      message(
        'the lines from there on may be stored: those with an answer_id can be sent again; compare the others with an export',
      )
    throw error
  } finally {
    await refusals.end()
  }
  printTotals(tally, options, refusals, unread.size > 0 ? [`not stored: ${[...unread].join(', ')}`] : [])
  if (interruption.aborted) throw new CommandError(`interrupted; go on with --from ${nextLine}`)
}

async function* answers(all: AsyncGenerator<RecordRead>, surveyId: bigint, unread: Set<string>): AsyncGenerator<Read> {
  const validate = compileRules(AnswerSchema)
  const judge = (value: unknown): Read['read'] => {
    try {
      const answer = answerFromJson(value)
      for (const member of Object.keys(value as object)) if (!ANSWER_MEMBERS.includes(member)) unread.add(member)
      const violation = validate(answer)
      const draft = toDraft(answer)
      const fault = violation ? violationInWords(violation) : refusalOf(answer, draft, surveyId)
      return fault === undefined ? { answer, bytes: draft.document.length } : { fault }
    } catch (error) {
      return { fault: (error as Error).message }
    }
  }
  for await (const { read, ...of } of all) yield { ...of, read: 'fault' in read ? read : judge(read.value) }
}

async function storeBatch(
  survey: Survey,
  batch: readonly Read[],
  { survey: surveyId, dryRun }: ImportOptions,
  tally: AnswerTally,
  refusals: Refusals,
): Promise<void> {
  const good = batch.flatMap(({ line, read }) => ('fault' in read ? [] : [{ line, answer: read.answer }]))
  for (const { line, read } of batch) if ('fault' in read) refuse(line, read.fault)
  tally.read += batch.length
  if (dryRun) tally.stored += good.length
  else if (good.length > 0 && !(await store(good))) for (const one of good) await store([one])
  await refusals.written()

  /** False if one of several is refused, which refuses all. */
  async function store(part: typeof good): Promise<boolean> {
    try {
      const request = { surveyId: BigInt(surveyId), answers: part.map(({ answer }) => answer) }
      const { alreadyStored } = await survey.importAnswers(request)
      tally.stored += part.length - alreadyStored
      tally.unchanged += alreadyStored
    } catch (error) {
      if (!(error instanceof ConnectError) || !REFUSALS.includes(error.code)) throw error
      if (part.length > 1) return false
      refuse(part[0]?.line ?? 0, error.rawMessage)
    }
    return true
  }

  function refuse(line: number, reason: string): void {
    tally.refused += 1
    refusals.add({ line, reason: reason.replaceAll('\n', '; ') })
  }
}

const REFUSALS: readonly Code[] = [Code.InvalidArgument, Code.AlreadyExists]
