import { chromiumPath, openChromium } from './chromium.js'
import { describeEngine } from './scenarios.js'

describeEngine('Chromium', chromiumPath !== undefined, openChromium)
