// survey-auth user import: the accounts of another system, with their password hashes.
import { type Command, Option } from 'commander'
import type { ImportOptions } from '../accounts/import-accounts.js'
import { command } from './command.js'
import { wholeNumber } from './options.js'

const NOTES = `
A record has an external_id or a username, and may have nickname, avatar, password_hash, disabled, created_at (ISO 8601) and
identities: [{"provider": "corp", "subject": "…"}]. CSV names the members in its first line, and has no identities.

password_hash is what argon2, bcrypt, scrypt, PBKDF2 (PHC string format, passlib), Django, Spring Security or LDAP write. MD5 and
SHA digests are hashed again with argon2id, which takes 10 ms each. Nobody needs a new password: each hash is replaced by ours when
its user signs in.

With --on-existing update a nickname or avatar that a record lacks is kept; "" or null empties it, in NDJSON only.

The key is the external_id, or else the username. A repetition changes nothing, so an import that was interrupted can be repeated,
or go on with --from. Exit code 3: some records were refused, all others are stored.
`

export function addUserImport(user: Command): void {
  command(user, 'import <file>', {
    about: 'create the accounts of another system; `-` reads standard input',
    examples: [
      'user import users.ndjson --dry-run',
      'user import users.csv --on-existing update --report refused.ndjson',
      'user import realm.json --convert keycloak',
    ],
    notes: NOTES,
  })
    .addOption(new Option('--format <format>', 'ndjson, unless the file is called .csv').choices(['ndjson', 'csv']))
    .addOption(
      new Option('--convert <system>', 'the file is an export of this system').choices([
        'keycloak',
        'auth0',
        'firebase',
      ]),
    )
    .option('--firebase-parameters <file>', "the project's password hash parameters, as the console shows them")
    .addOption(
      new Option('--on-existing <what>', 'users who are there already and differ')
        .choices(['fail', 'skip', 'update'])
        .default('fail'),
    )
    .option('--replace-passwords', 'with --on-existing update: replace passwords too, and end sessions')
    .option('--allow-cost', 'take hashes that cost more to compare than a sign-in should')
    .option('--dry-run', 'store nothing, say what would be')
    .option(
      '--from <line>',
      'begin with this line of the file, or record of a JSON document',
      wholeNumber(1, 2 ** 31),
      1,
    )
    .option('--report <file>', 'write each refused record and why, as NDJSON')
    .action(async (file: string, options: ImportOptions) => {
      const { importAccounts } = await import('../accounts/import-accounts.js') // loads zod and a reader of CSV: only here
      await importAccounts(file, options)
    })
}
