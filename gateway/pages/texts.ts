// Every text of the pages. A text missing in one language does not compile. `{name}` marks a place for what is filled in; what
// is written by others is filled in by templates, escaped and isolated.
import type { Problem } from '../errors.js'
import type { Language } from './language.js'

const en = {
  serviceName: 'Survey Authorization',
  language: 'Language',
  requestId: 'Request ID',
  links: { help: 'Help', privacy: 'Privacy', terms: 'Terms', support: 'Support' },

  signIn: {
    title: 'Sign in',
    lead: 'Use your survey account.',
    leadForApp: 'Sign in to your survey account to continue to {app}.',
    username: 'Username',
    password: 'Password',
    show: 'Show password',
    hide: 'Hide password',
    submit: 'Sign in',
    atPlatform: 'Continue to sign in',
    with: 'Sign in with {place}',
    or: 'or',
    failed: 'The username or password is incorrect. Please check both and try again.',
    incomplete: 'Please enter your username and your password.',
    signOutDone: 'You are signed out. Connected apps keep their access.',
    signOutDoneHere:
      'You are signed out here. You may still be signed in at {place}. Connected apps keep their access: sign in to see them and to end it.',
    thePlatform: 'the site where you signed in',
    signedOut: 'You have been signed out. Nothing has been changed. Please sign in to continue.',
    sessionEnded: 'Your session has ended, so nothing was shared. Sign in again to decide.',
    formReplaced:
      'This form was replaced because our pages were also opened in another tab. Please enter your password again.',
    formExpired: 'This page was open for more than 30 minutes. Please enter your password again.',
    rateLimited: 'Too many sign-in attempts. Please wait {wait} and try again.',
  },

  signInElsewhere: {
    cancelled: ['You did not sign in', 'Nobody is signed in, and nothing was shared.'],
    notAllowed: [
      'You may not sign in here',
      'Your account was recognized, but it is not allowed to use this service. If it should be, ask those who manage your account.',
    ],
    noAccount: [
      'You have no account here yet',
      'Your account was recognized, but no account here is connected to it. Ask those who manage your account to connect it.',
    ],
    userDisabled: ['This account is disabled', 'Ask those who manage your account why.'],
    identityTaken: [
      'Already connected',
      'This sign-in is connected to another account here. Nothing has been changed.',
    ],
    expired: [
      'That took too long',
      'For your security, a sign-in must end in time. Nothing was shared. Please start again.',
    ],
    otherBrowser: [
      'Begun in another browser',
      'This sign-in was begun in another browser, or this one does not keep our cookies. It can still be finished where it was begun. Here, please start again.',
    ],
    unknown: ['This sign-in is over', 'An address like this works once. Please start again if you are not signed in.'],
    providerUnavailable: [
      'Sign-in is not available right now',
      'The service at which you sign in cannot be reached. Nothing is lost: please try again in a moment.',
    ],
    providerMisconfigured: [
      'Sign-in does not work',
      'The service at which you sign in gave an answer that cannot be accepted. Nothing was shared. Please tell us the request ID below.',
    ],
  },

  authorization: {
    title: 'Authorize {app}',
    heading: '{app} would like to connect to your surveys',
    returnTo: 'You will return to {host}',
    connectedSince: 'Already connected since {time}.',
    answersAreNew: 'Reading answers is new.',
    signedInAs: 'Signed in as',
    switchAccount: 'Switch account',
    itMay: 'This app will be able to',
    basicProfile: 'See your basic profile',
    basicProfileDetail: 'your nickname and avatar, and an ID made for this app only',
    readSurveys: 'Read your surveys',
    readSurveysDetail: 'the list of your surveys and their questions',
    readAnswers: 'Read the answers people gave to your surveys, also future ones.',
    readAnswersDetail: 'They can contain personal data of others; you answer for passing them on.',
    itMayNot: 'It will not be able to',
    notAnswers: 'see the answers people gave',
    mayNot: ['change or delete your surveys', 'see your password'],
    duration: 'The app can renew its access for {time}, then it has to ask you again.',
    takeBackBefore: ' You can end its access at any time under ',
    takeBackLink: 'Connected apps',
    takeBackAfter: '.',
    confirm: 'Confirm',
    cancel: 'Cancel',
  },

  app: {
    says: 'The app says of itself:',
    homePage: 'Home page',
    privacy: 'Privacy policy',
    contact: 'Contact:',
  },

  apps: {
    title: 'Connected apps',
    lead: 'These apps can see your basic profile and read your surveys. If you end an app’s access, it takes effect at once.',
    searchLabel: 'Search by name, address or appid',
    search: 'Search',
    found: '{shown} of {total} apps',
    showAll: 'Show all',
    noneFound: 'No app is found',
    noneFoundDetail: 'Nothing in the names, addresses and appids of your connected apps matches “{search}”.',
    empty: 'No app is connected',
    emptyDetail: 'When you allow an app to read your surveys, it appears here.',
    firstUse: 'Connected',
    lastUse: 'Last used',
    readsAnswers: 'Can also read the answers to your surveys',
    answersRead: 'Answers last read',
    never: 'never',
    expiry: 'Expires',
    disconnect: 'End access',
    keep: 'Keep access',
    question: '{app} will no longer be able to read your surveys. To get access again, it has to ask you.',
    confirm: 'End access now',
    confirmLabel: 'End access now: {app}',
    disconnected: 'Access has ended. {app} can no longer read your surveys.',
    theApp: 'The app',
    signOut: 'Sign out',
  },

  account: {
    title: 'Your account',
    byPassword: 'Signed in by password',
    byPlatform: 'Signed in at the platform',
    byProvider: 'Signed in with {place}',
    password: 'Password',
    currentPassword: 'Current password',
    newPassword: 'New password',
    passwordHint: 'At least 8 characters. All other sessions end; connected apps keep their access.',
    changePassword: 'Change password',
    elsewhere: 'Other ways to sign in',
    link: 'Connect {place}',
    linkedSince: 'Connected since',
    unlink: 'Remove',
    lastWay: 'This is your only way to sign in, so it stays.',
    signInToLink: 'To connect another way to sign in, sign in again first: that must be at most 5 minutes ago.',
    sessions: 'Where you are signed in',
    unknownBrowser: 'Unknown browser',
    started: 'Signed in',
    lastSeen: 'Last seen',
    thisOne: 'This browser',
    endSession: 'Sign out there',
    endOthers: 'Sign out everywhere else',
    grantsStay: 'Signing out takes no access away from connected apps.',
    notices: {
      passwordChanged: 'Your password has been changed. You are signed out everywhere else.',
      passwordWrong: 'The current password is incorrect. Nothing has been changed.',
      passwordUnfit: 'The new password needs at least 8 characters. Nothing has been changed.',
      sessionsEnded: 'Signed out there. Connected apps keep their access.',
      linked: 'Connected. You can sign in that way from now on.',
      linkRefused: 'The password is incorrect. Nothing has been connected.',
      unlinked: 'Removed. Nobody can sign in that way any more.',
      unlinkRefused: 'This is your only way to sign in, so it stays.',
      tooManyAttempts: 'Too many attempts. Nothing has been changed. Please wait {wait} and try again.',
    },
  },

  landing: {
    title: 'Your surveys, shared only when you say so',
    lead: 'Here you decide which apps may read your survey data, and for how long.',
    apps: 'See connected apps',
    developers: 'Building an app? Its users start at /connect/oauth2/authorize; your server then calls /api.',
  },

  link: {
    title: 'This link does not work',
    lead: 'The app that sent you here made a mistake in its link. Nothing was shared. Please go back and tell the people who run the app.',
    forDevelopers: 'For the app’s developer',
    invalidAppid: 'The appid is unknown, or the app is disabled. Use the appid that the platform issued for your app.',
    invalidRedirectUri:
      'The redirect_uri is not registered for this app. It must equal a registered address character for character, and be URL-encoded once in the link.',
    invalidResponseType: 'The response_type must be “code”.',
    invalidScope: 'The scope must be “snsapi_user”.',
    invalidState: 'The state may contain only a-z, A-Z and 0-9, at most 128 characters.',
    invalidCodeChallenge:
      'The code_challenge must be the SHA-256 of your code_verifier in base64url, 43 characters, with code_challenge_method=S256. This app may be one that must send it.',
    malformed: ({ message }: MalformedLink) => `The link is malformed: ${message}.`,
    bare: 'Please start in the app',
    bareLead:
      'This page opens from a link in the app that would like to connect. Nothing was shared. Please go back to the app and start again there.',
    tooLong: 'This link is too long',
  },

  form: {
    expired: 'This form has expired',
    expiredLead: 'For your security, a form is valid for 30 minutes. Nothing has been changed. Please start again.',
    rejected: 'This form can no longer be used',
    rejectedLead:
      'You may have signed in or out in another tab since it was opened. Nothing has been changed. Please start again.',
    noCookies: 'Cookies are needed',
    noCookiesLead:
      'Your browser did not send the cookies of this site. Nothing has been changed. Please allow cookies for {address}, then start again.',
    crossSite: 'This form came from another address',
    crossSiteLead: 'Forms are only accepted from our own pages, at {address}. Nothing has been changed.',
    hiddenOrigin: 'Your browser did not say where this form came from',
    hiddenOriginLead:
      'Forms are only accepted from our own pages, at {address}. Your browser, an extension, or a proxy between you and us hides that. Nothing has been changed. Please allow it for this site or use another browser, then start again.',
    unreadable: 'This form could not be read',
    unreadableLead: 'Nothing has been changed. Please start again.',
    startAgain: 'Start again',
  },

  errors: {
    notFound: ['Page not found', 'There is nothing at this address. Please check the link.'],
    methodNotAllowed: ['That is not possible here', 'This address cannot be used in this way.'],
    formTooLarge: [
      'The form is too large',
      'Nothing has been changed. Please go back, shorten what you entered and try again.',
    ],
    headersTooLarge: [
      'Your browser sent too much',
      'Cookies are the usual cause. Please delete the cookies of this site and try again.',
    ],
    tooMany: ['Too many requests', 'Nothing has been changed. Please wait a moment and try again.'],
    tooManyWait: 'Nothing has been changed. Please wait {wait} and try again.',
    badRequest: ['The request could not be read', 'Nothing has been changed. Please go back and try again.'],
    unavailable: [
      'Not available right now',
      'A part of this service cannot be reached. Nothing is lost: please try again in a moment.',
    ],
    unexpected: [
      'Something went wrong',
      'This is our fault. If it happens again, please tell us the request ID below.',
    ],
    tryAgain: 'Try again',
    home: 'Go to connected apps',
  },

  duration: {
    days: (count: number) => (count === 1 ? '1 day' : `${count} days`),
    hours: (count: number) => (count === 1 ? '1 hour' : `${count} hours`),
    minutes: (count: number) => (count === 1 ? '1 minute' : `${count} minutes`),
    seconds: (count: number) => (count === 1 ? '1 second' : `${count} seconds`),
  },
}

export type Texts = typeof en

/** A problem with a link: English in itself, and as what it is for other languages. */
type MalformedLink = Pick<Problem, 'message' | 'options'>

const zh: Texts = {
  serviceName: '问卷授权',
  language: '语言',
  requestId: '请求编号',
  links: { help: '帮助', privacy: '隐私政策', terms: '服务条款', support: '联系支持' },

  signIn: {
    title: '登录',
    lead: '请使用您的问卷账号登录。',
    leadForApp: '登录您的问卷账号，以继续前往“{app}”。',
    username: '用户名',
    password: '密码',
    show: '显示密码',
    hide: '隐藏密码',
    submit: '登录',
    atPlatform: '前往登录',
    with: '使用{place}登录',
    or: '或',
    failed: '用户名或密码不正确，请检查后重试。',
    incomplete: '请输入用户名和密码。',
    signOutDone: '您已退出登录。已授权的应用仍可访问。',
    signOutDoneHere: '您已在此退出登录，但可能仍登录在{place}。已授权的应用仍可访问：登录后可查看并取消授权。',
    thePlatform: '您登录时所用的网站',
    signedOut: '您已退出登录，没有任何内容被更改。请登录后继续。',
    sessionEnded: '您的登录已失效，没有共享任何内容。请重新登录后再作决定。',
    formReplaced: '另一个标签页同时打开了本站页面，此表单已重新生成。请再次输入密码。',
    formExpired: '此页面打开已超过 30 分钟，请再次输入密码。',
    rateLimited: '登录尝试次数过多，请在 {wait}后重试。',
  },

  signInElsewhere: {
    cancelled: ['您没有登录', '没有任何人登录，也没有共享任何内容。'],
    notAllowed: ['您不能在此登录', '已确认您的账号，但它不能使用本服务。如有疑问，请联系账号管理员。'],
    noAccount: ['您在此还没有账号', '已确认您的账号，但此处没有与之关联的账号。请联系账号管理员进行关联。'],
    userDisabled: ['此账号已停用', '请向账号管理员了解原因。'],
    identityTaken: ['已被关联', '此登录方式已与本站另一个账号关联，没有任何内容被更改。'],
    expired: ['用时过长', '为了您的安全，登录须在限定时间内完成。没有共享任何内容，请重新开始。'],
    otherBrowser: [
      '登录是在另一个浏览器中开始的',
      '此登录是在另一个浏览器中开始的，或者此浏览器没有保存本站的 Cookie。您仍可在原浏览器中完成登录；若要在此登录，请重新开始。',
    ],
    unknown: ['此次登录已结束', '这样的地址只能使用一次。如果您尚未登录，请重新开始。'],
    providerUnavailable: ['暂时无法登录', '无法连接到您的登录服务。没有任何内容丢失，请稍后重试。'],
    providerMisconfigured: [
      '登录无法完成',
      '您的登录服务返回了无法接受的结果，没有共享任何内容。请将下方的请求编号告知我们。',
    ],
  },

  authorization: {
    title: '授权“{app}”',
    heading: '{app} 申请访问您的问卷',
    returnTo: '完成后将返回 {host}',
    connectedSince: '您已授权此应用（自{time}起）。',
    answersAreNew: '读取回答是此次新增的权限。',
    signedInAs: '当前账号',
    switchAccount: '切换账号',
    itMay: '该应用将可以',
    basicProfile: '查看您的基本资料',
    basicProfileDetail: '昵称、头像，以及仅供该应用使用的用户标识',
    readSurveys: '读取您的问卷',
    readSurveysDetail: '问卷列表和问卷题目',
    readAnswers: '读取他人对您问卷的回答，包括以后的回答。',
    readAnswersDetail: '其中可能含有他人的个人信息，由您决定是否提供。',
    itMayNot: '该应用无法',
    notAnswers: '查看他人对您问卷的回答',
    mayNot: ['修改或删除您的问卷', '得知您的密码'],
    duration: '应用可在 {time}内续期访问权限，到期后需要重新征得您的同意。',
    takeBackBefore: '您可以随时在',
    takeBackLink: '已授权的应用',
    takeBackAfter: '中取消授权。',
    confirm: '确认',
    cancel: '取消',
  },

  app: {
    says: '该应用的自我介绍：',
    homePage: '主页',
    privacy: '隐私政策',
    contact: '联系方式：',
  },

  apps: {
    title: '已授权的应用',
    lead: '以下应用可以查看您的基本资料、读取您的问卷。取消授权后立即生效。',
    searchLabel: '按名称、网址或 appid 搜索',
    search: '搜索',
    found: '共 {total} 个应用，显示 {shown} 个',
    showAll: '显示全部',
    noneFound: '没有找到应用',
    noneFoundDetail: '已授权的应用中，没有名称、网址或 appid 与“{search}”相符的应用。',
    empty: '还没有授权任何应用',
    emptyDetail: '当您允许某个应用读取问卷后，它会显示在这里。',
    firstUse: '授权时间',
    lastUse: '最近使用',
    readsAnswers: '还可以读取他人对您问卷的回答',
    answersRead: '最近读取回答',
    never: '从未读取',
    expiry: '到期时间',
    disconnect: '取消授权',
    keep: '保留授权',
    question: '{app} 将无法再读取您的问卷。如需再次访问，它必须重新征得您的同意。',
    confirm: '立即取消授权',
    confirmLabel: '立即取消授权：{app}',
    disconnected: '已取消授权，{app} 无法再读取您的问卷。',
    theApp: '该应用',
    signOut: '退出登录',
  },

  account: {
    title: '您的账号',
    byPassword: '已通过密码登录',
    byPlatform: '已在平台登录',
    byProvider: '已使用{place}登录',
    password: '密码',
    currentPassword: '当前密码',
    newPassword: '新密码',
    passwordHint: '至少 8 个字符。其他所有登录都将退出；已授权的应用不受影响。',
    changePassword: '修改密码',
    elsewhere: '其他登录方式',
    link: '关联{place}',
    linkedSince: '关联时间',
    unlink: '取消关联',
    lastWay: '这是您唯一的登录方式，因此无法取消。',
    signInToLink: '如需关联其他登录方式，请先重新登录：登录后 5 分钟内可以关联。',
    sessions: '登录中的浏览器',
    unknownBrowser: '未知浏览器',
    started: '登录时间',
    lastSeen: '最近使用',
    thisOne: '当前浏览器',
    endSession: '退出该登录',
    endOthers: '退出其他所有登录',
    grantsStay: '退出登录不会取消对应用的授权。',
    notices: {
      passwordChanged: '密码已修改，其他所有登录均已退出。',
      passwordWrong: '当前密码不正确，没有任何内容被更改。',
      passwordUnfit: '新密码至少需要 8 个字符，没有任何内容被更改。',
      sessionsEnded: '已退出该登录。已授权的应用不受影响。',
      linked: '关联成功，今后可以用这种方式登录。',
      linkRefused: '密码不正确，没有进行关联。',
      unlinked: '已取消关联，今后无法再用这种方式登录。',
      unlinkRefused: '这是您唯一的登录方式，因此无法取消。',
      tooManyAttempts: '尝试次数过多，没有任何内容被更改。请在 {wait}后重试。',
    },
  },

  landing: {
    title: '您的问卷，由您决定与谁共享',
    lead: '在这里，您可以决定哪些应用能读取您的问卷数据，以及可以读取多久。',
    apps: '查看已授权的应用',
    developers: '正在开发应用？请将用户引导至 /connect/oauth2/authorize，再由您的服务器调用 /api。',
  },

  link: {
    title: '链接无效',
    lead: '将您带到这里的应用所提供的链接有误。您的数据没有被共享。请返回并告知该应用的运营者。',
    forDevelopers: '致应用开发者',
    invalidAppid: 'appid 不存在，或该应用已被停用。请使用平台为您的应用分配的 appid。',
    invalidRedirectUri:
      'redirect_uri 未在该应用中登记。它必须与已登记的地址逐字符一致，并在链接中只进行一次 URL 编码。',
    invalidResponseType: 'response_type 必须为“code”。',
    invalidScope: 'scope 必须为“snsapi_user”。',
    invalidState: 'state 只能包含 a-z、A-Z、0-9，且不超过 128 个字符。',
    invalidCodeChallenge:
      'code_challenge 必须是 code_verifier 的 SHA-256 值的 base64url 编码（43 个字符），并且 code_challenge_method=S256。此应用可能被要求必须发送该参数。',
    malformed: (problem) => `链接格式有误：${malformedInChinese(problem)}。`,
    bare: '请从应用中打开',
    bareLead: '此页面需要通过应用中的链接打开。没有共享任何内容。请返回该应用重新开始。',
    tooLong: '链接过长',
  },

  form: {
    expired: '表单已过期',
    expiredLead: '为保障安全，表单仅在 30 分钟内有效。没有任何内容被更改，请重新开始。',
    rejected: '此表单已不可用',
    rejectedLead: '此页面打开之后，您可能在其他标签页登录或退出过。没有任何内容被更改，请重新开始。',
    noCookies: '需要启用 Cookie',
    noCookiesLead: '您的浏览器没有发送本站的 Cookie。没有任何内容被更改。请允许 {address} 使用 Cookie，然后重新开始。',
    crossSite: '该表单来自其他地址',
    crossSiteLead: '只接受从本站页面（{address}）提交的表单。没有任何内容被更改。',
    hiddenOrigin: '您的浏览器没有说明表单的来源',
    hiddenOriginLead:
      '只接受从本站页面（{address}）提交的表单，而您的浏览器、扩展程序或网络代理隐藏了来源。没有任何内容被更改。请为本站允许发送来源信息，或换用其他浏览器，然后重新开始。',
    unreadable: '无法读取此表单',
    unreadableLead: '没有任何内容被更改，请重新开始。',
    startAgain: '重新开始',
  },

  errors: {
    notFound: ['页面不存在', '此地址没有内容，请检查链接。'],
    methodNotAllowed: ['无法这样访问', '此地址不支持这种访问方式。'],
    formTooLarge: ['表单内容过大', '没有任何内容被更改。请返回，缩短填写的内容后重试。'],
    headersTooLarge: ['浏览器发送的数据过多', '通常是 Cookie 过多所致。请清除本站的 Cookie 后重试。'],
    tooMany: ['请求过于频繁', '没有任何内容被更改，请稍后重试。'],
    tooManyWait: '没有任何内容被更改，请在 {wait}后重试。',
    badRequest: ['无法读取请求', '没有任何内容被更改，请返回重试。'],
    unavailable: ['服务暂时不可用', '服务的某个部分暂时无法连接。没有任何内容丢失，请稍后重试。'],
    unexpected: ['出了点问题', '这是我们的问题。如果再次出现，请将下方的请求编号告诉我们。'],
    tryAgain: '重试',
    home: '查看已授权的应用',
  },

  duration: {
    days: (count) => `${count} 天`,
    hours: (count) => `${count} 小时`,
    minutes: (count) => `${count} 分钟`,
    seconds: (count) => `${count} 秒`,
  },
}

export const texts: Readonly<Record<Language, Texts>> = { zh, en }

/** The texts that a platform may replace, by their keys, for example `errors.notFound.0`; its name is no such text. */
export function replaceableTexts(language: Language): ReadonlyMap<string, string> {
  const { serviceName: _, ...replaceable } = texts[language]
  return new Map(leavesOf(replaceable, ''))
}

function leavesOf(node: object, path: string): [string, string][] {
  return Object.entries(node).flatMap(([name, value]): [string, string][] => {
    if (typeof value === 'string') return [[path + name, value]]
    return typeof value === 'object' ? leavesOf(value, `${path}${name}.`) : []
  })
}

/** A copy with other texts at some keys. */
export function replaceTexts<Node extends object>(node: Node, by: Readonly<Record<string, string>>, path = ''): Node {
  const copy = Array.isArray(node) ? [...node] : { ...node }
  const entries = Object.entries(node).map(([name, value]) => {
    if (typeof value === 'string') return [name, by[path + name] ?? value]
    return [name, typeof value === 'object' ? replaceTexts(value, by, `${path}${name}.`) : value]
  })
  return Object.assign(copy, Object.fromEntries(entries))
}

/** The places of a text in a fixed order, for example `{shown} {total}`. */
export function placesIn(text: string): string {
  return (text.match(/\{\w+\}/g) ?? []).sort().join(' ')
}

/** Puts values into the places of a text. */
export function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replace(/\{(\w+)\}/g, (place, name) => String(values[name] ?? place))
}

function malformedInChinese({ message, options: { malformed } }: MalformedLink): string {
  switch (malformed?.what) {
    case 'missing':
      return `缺少参数 ${malformed.name}，或其值为空`
    case 'repeated':
      return `参数 ${malformed.name} 只能出现一次`
    case 'too_long':
      return `参数 ${malformed.name} 过长，最多 ${malformed.max} 个字符`
    case 'control_characters':
      return `参数 ${malformed.name} 含有控制字符`
    case 'unencoded':
      return '参数中有字符未经 URL 编码'
    case 'not_utf8':
      return '参数不是 UTF-8 的 URL 编码'
    default:
      return message
  }
}
