import { firefoxPath, openFirefox } from './firefox.js'
import { describeEngine } from './scenarios.js'

describeEngine('Firefox', firefoxPath !== undefined, openFirefox)
