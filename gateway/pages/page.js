// Three small aids; every page works without them.

// Spec 4.1: the link of the authorization page ends in #wj_redirect. Servers never see a fragment, so it is checked here.
const { expectsFragment, address } = document.body.dataset
if (expectsFragment && location.hash !== `#${expectsFragment}`) {
  console.warn(`The link of the authorization page should end in #${expectsFragment}.`)
}

// A page that answers a form takes its address for GET: reloading it, or coming back to it, sends nothing again.
if (address) history.replaceState(null, '', address)

// A second click while the first is in flight is dropped. Buttons stay enabled: a disabled one would not send its value.
const REPEAT_AFTER_MS = 5000 // then a click counts again, in case the first got lost on the way
const sentAt = new WeakMap()
document.addEventListener('submit', (event) => {
  const form = event.target
  const sent = sentAt.get(form)
  if (sent !== undefined && event.timeStamp - sent < REPEAT_AFTER_MS) {
    event.preventDefault()
    return
  }
  sentAt.set(form, event.timeStamp)
  form.setAttribute('aria-busy', 'true')
  setTimeout(() => form.removeAttribute('aria-busy'), REPEAT_AFTER_MS)
})

// Coming back with the browser's back button shows the page as it was left: let its forms be sent again at once.
addEventListener('pageshow', (event) => {
  if (!event.persisted) return
  for (const form of document.forms) {
    sentAt.delete(form)
    form.removeAttribute('aria-busy')
  }
})
