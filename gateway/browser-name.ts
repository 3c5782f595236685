// What a user knows a browser again by. The whole User-Agent would say far more, and is neither stored nor logged. Libraries that
// read it follow thousands of devices; a dozen families and systems are what a person tells apart.

/** The first that matches: browsers claim to be those that they derive from. */
const FAMILIES: readonly (readonly [RegExp, string])[] = [
  [/MicroMessenger/, 'WeChat'],
  [/QQBrowser|MQQBrowser/, 'QQ Browser'],
  [/UCBrowser|UBrowser/, 'UC Browser'],
  [/HuaweiBrowser/, 'Huawei Browser'],
  [/MiuiBrowser/, 'Mi Browser'],
  [/SamsungBrowser/, 'Samsung Internet'],
  [/Edg(A|iOS)?\//, 'Edge'],
  [/OPR\//, 'Opera'],
  [/(Firefox|FxiOS)\//, 'Firefox'],
  [/(Chrome|CriOS)\//, 'Chrome'],
  [/Safari\//, 'Safari'],
]

const SYSTEMS: readonly (readonly [RegExp, string])[] = [
  [/OpenHarmony|HarmonyOS/, 'HarmonyOS'],
  [/Android/, 'Android'],
  [/iPhone|iPad/, 'iOS'],
  [/Windows/, 'Windows'],
  [/Macintosh/, 'macOS'],
  [/CrOS/, 'ChromeOS'],
  [/Linux/, 'Linux'],
]

/** For example `Firefox, Linux`; what is unknown is left out. */
export function browserName(userAgent = ''): string {
  const first = (names: typeof FAMILIES) => names.find(([pattern]) => pattern.test(userAgent))?.[1]
  return [first(FAMILIES), first(SYSTEMS)].filter((name) => name !== undefined).join(', ')
}
