import { describeEngine } from './scenarios.js'
import { hasWebKit, openWebKit } from './webkit.js'

describeEngine('WebKit', hasWebKit, openWebKit)
