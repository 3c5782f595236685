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
  const form = event.target
  const sent = sentAt.get(form)
  if (sent !== undefined && event.timeStamp - sent < REPEAT_AFTER_MS) {
    event.preventDefault()
    return
  }
  sentAt.set(form, event.timeStamp)
  const wait = showPending(form, buttonToMark(form, event.submitter))
  setTimeout(wait.over, REPEAT_AFTER_MS)
  addEventListener('pageshow', wait.over, { once: true })
})

/** The button that was pressed, or that Enter stands for; none for the language switch. */
function buttonToMark(form, pressed) {
  if (pressed?.hasAttribute('formaction')) return undefined
  return form.contains(pressed) ? pressed : form.querySelector('[type=submit]')
}

/** Says on a button that it is at work; `over` undoes it. */
function showPending(form, button) {
  const label = button?.textContent
  const name = button?.ariaLabel
  form.setAttribute('aria-busy', 'true')
  if (button) {
    button.textContent = document.body.dataset.pending
    button.ariaLabel = null
  }
  return {
    over() {
      form.removeAttribute('aria-busy')
      if (button) {
        button.textContent = label
        button.ariaLabel = name
      }
    },
  }
}

// Coming back with the browser's back button may show the page as it was left; WebKit keeps it despite `no-store` where there is no
// TLS. What only its user may see is asked for again; of any other page, the forms can be sent again at once.
addEventListener('pageshow', (event) => {
  if (!event.persisted) return
  if (document.querySelector('form[action^="/connect/sign-out"]')) location.reload()
  for (const form of document.forms) sentAt.delete(form)
})

// A password can be shown; it is hidden again when it is sent, so that browsers know it for one.
for (const button of document.querySelectorAll('.reveal')) {
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
