// The npm package `oidc-provider` as a process of its own: an OpenID Provider that other people wrote. It knows one client, whose
// redirect URIs are sent to it, and signs in whoever types a name; the name is the subject.
import Provider from 'oidc-provider'

/** What is said of a user, as sent by the test. */
const people = new Map()
const client = {
  client_id: 'surveys',
  client_secret: process.env.CLIENT_SECRET,
  redirect_uris: [],
  grant_types: ['authorization_code'],
  response_types: ['code'],
}
const port = Number(process.env.PORT)
const issuer = `http://127.0.0.1:${port}`

const provider = new Provider(issuer, {
  // Cookies do not keep ports apart: two providers on one machine need other names.
  cookies: { keys: [issuer], names: { session: `s${port}`, interaction: `i${port}`, resume: `r${port}` } },
  claims: { openid: ['sub'], profile: ['name', 'picture', 'groups'] },
  features: { devInteractions: { enabled: true }, userinfo: { enabled: true } },
  pkce: { required: () => true },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...people.get(sub) }) }),
  // Whoever has signed in consents.
  async loadExistingGrant({ oidc }) {
    const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId })
    grant.addOIDCScope('openid profile')
    await grant.save()
    return grant
  },
})
provider.Client.find = async (id) => (id === client.client_id ? new provider.Client(client) : undefined)

process.on('message', ({ redirectUri, person }) => {
  if (redirectUri) client.redirect_uris.push(redirectUri)
  if (person) people.set(person.sub, person)
  process.send('done')
})
process.on('disconnect', () => process.exit())
provider.listen(port, '127.0.0.1', () => process.send('listening'))
