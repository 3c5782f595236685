// What the app looks like. Everything that comes from elsewhere goes through `html`, which escapes it.

const STATES = { 0: 'Draft', 2: 'Collecting', 3: 'Paused' }

class Safe {
  constructor(text) {
    this.text = text
  }
}

/** Template tag: escapes every value, except what `html` made itself. */
function html(strings, ...values) {
  return new Safe(String.raw({ raw: strings }, ...values.map(toHtml)))
}

function toHtml(value) {
  if (value instanceof Safe) return value.text
  if (Array.isArray(value)) return value.map(toHtml).join('')
  return String(value ?? '').replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}

/** A whole document around one of the parts below. */
export function page(content) {
  return toHtml(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Harvest — an example app</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/style.css">
</head>
<body>
<header><a href="/">Harvest</a><span>an example third-party app</span></header>
<main>${content}</main>
</body>
</html>
`)
}

const connectButton = html`<a class="button" href="/connect">Connect your surveys</a>`

export function connectPage() {
  return html`<section class="hero">
<h1>Turn answers into insight</h1>
<p>Harvest reads the surveys you already have. You decide on the next page, and you can take it back whenever you like.</p>
${connectButton}
</section>`
}

export function messagePage(heading, text) {
  return html`<section class="hero"><h1>${heading}</h1><p>${text}</p>${connectButton}</section>`
}

export function homePage({ user, surveys }) {
  return html`<section class="who">
<div><p class="muted">Connected as</p><h1><bdi>${user.nickname || 'someone without a nickname'}</bdi></h1><p class="muted"><code>${user.openid}</code></p></div>
<a class="quiet" href="/leave">Forget me here</a>
</section>
<h2>${surveys.length} ${surveys.length === 1 ? 'survey' : 'surveys'}</h2>
<ul class="list">${surveys.map(
    ({ id, title, state }) =>
      html`<li><a href="/surveys/${id}"><bdi>${title}</bdi></a><span class="tag">${STATES[state] ?? state}</span></li>`,
  )}</ul>`
}

const toAll = html`<p><a href="/">← All surveys</a></p>`

export function missingPage() {
  return html`${toAll}<h1>There is no such survey</h1><p>It may have been deleted, or it is not yours.</p>`
}

export function surveyPage(survey) {
  const asked = survey.pages.flatMap(({ questions }) => questions).filter(isAsked)
  return html`${toAll}
<h1><bdi>${survey.title}</bdi></h1>
<p class="muted">${STATES[survey.state] ?? survey.state} · ${survey.topic_count} questions</p>
${survey.pages.map(
  ({ questions }, index) =>
    html`<section class="sheet"><h2>Page ${index + 1}</h2><ol>${questions.map((one) => question(one, asked.indexOf(one) + 1))}</ol></section>`,
)}`
}

/** A description is text between questions. */
function isAsked({ type }) {
  return type !== 'description'
}

/** @param {number} number among all questions, from 1 */
function question(one, number) {
  const { title, type, required, options, subTitles } = one
  if (!isAsked(one)) return html`<li class="text"><p><bdi>${title}</bdi></p></li>`
  return html`<li value="${number}"><p><bdi>${title}</bdi>${required ? html` <span class="muted">required</span>` : ''}</p>
<p class="tag">${type.replaceAll('_', ' ')}</p>
${texts('Rows', subTitles)}${texts(subTitles?.length ? 'Columns' : '', options)}</li>`
}

function texts(heading, list) {
  if (!list?.length) return ''
  return html`${heading && html`<p class="muted">${heading}</p>`}<ul>${list.map(({ text }) => html`<li><bdi>${text}</bdi></li>`)}</ul>`
}
