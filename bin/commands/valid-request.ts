// Requests that would make a database are checked before it is made.
import { create, type DescMessage, type MessageInitShape } from '@bufbuild/protobuf'
import { compileRules, violationInWords } from '../../services/rpc/validation.js'
import { CommandError } from '../exit.js'

/** @returns the request. @throws CommandError with what its service would answer */
export function valid<D extends DescMessage>(desc: D, request: MessageInitShape<D>): MessageInitShape<D> {
  const violation = compileRules(desc)(create(desc, request))
  if (violation) throw new CommandError(violationInWords(violation))
  return request
}
