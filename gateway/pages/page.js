// Small aids; every page works without them.

// Spec 4.1: the link of the authorization page ends in #wj_redirect. Servers never see a fragment, so it is checked here.
const { expectsFragment } = document.body.dataset
if (expectsFragment && location.hash !== `#${expectsFragment}`) {
  console.warn(`The link of the authorization page should end in #${expectsFragment}.`)
}

// A second click while the first is in flight is dropped. Buttons stay enabled: a disabled one would not send its value.
const REPEAT_AFTER_MS = 5000 // then a click counts again, in case the first got lost on the way
const sentAt = new WeakMap()
document.addEventListener('submit', (event) => {
  const sent = sentAt.get(event.target)
  if (sent !== undefined && event.timeStamp - sent < REPEAT_AFTER_MS) event.preventDefault()
  else sentAt.set(event.target, event.timeStamp)
})

// Coming back with the browser's back button may show the page as it was left; WebKit keeps it despite `no-store` where there is no
// TLS. What only its user may see is asked for again; of any other page, the forms can be sent again at once.
addEventListener('pageshow', (event) => {
  if (!event.persisted) return
  if (document.querySelector('form[action^="/connect/sign-out"]')) location.reload()
  for (const form of document.forms) sentAt.delete(form)
})

// A password can be shown; it is hidden again when it is sent, so that browsers know it for one.
for (const button of document.querySelectorAll('[aria-controls]')) {
  const input = document.getElementById(button.getAttribute('aria-controls'))
  const show = (isShown) => {
    if ((input.type === 'text') === isShown) return
    input.type = isShown ? 'text' : 'password'
    const { other } = button.dataset
    button.dataset.other = button.textContent
    button.textContent = other
  }
  button.hidden = false
  button.addEventListener('click', () => show(input.type === 'password'))
  input.form.addEventListener('submit', () => show(false))
}

// Times in the reader's own zone, and in their spelling if they read the language of the page.
const { lang } = document.documentElement
const spelling = navigator.languages.find((one) => one.split('-')[0] === lang.split('-')[0]) ?? lang
const dateStyle = lang === 'en' ? 'medium' : 'long'
const day = new Intl.DateTimeFormat(spelling, { dateStyle })
const clock = new Intl.DateTimeFormat(spelling, { dateStyle, timeStyle: 'short' })
for (const time of document.querySelectorAll('time')) {
  time.textContent = (time.classList.contains('day') ? day : clock).format(new Date(time.dateTime))
}
