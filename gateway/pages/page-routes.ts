// The pages: where people sign in, authorize an app, see the apps they authorized, and end their access. This folder renders
// HTML and keeps cookies; who is signed in and what an app may do is decided behind the RPCs.
import type { Route } from '../http.js'
import { assetRoutes } from './asset-routes.js'
import { authorizationRoutes } from './authorization.js'
import { connectedAppsRoutes } from './connected-apps.js'
import { landingRoute } from './landing.js'
import { languageSwitchRoute } from './language-switch.js'
import { signInRoutes } from './sign-in.js'
import { returnRoutes } from './sign-in-elsewhere.js'
import { signOutRoute } from './sign-out.js'
import { wayBackRoutes } from './way-back.js'
import { yourAccountRoutes } from './your-account.js'

export const pageRoutes: readonly Route[] = [
  landingRoute,
  languageSwitchRoute,
  ...authorizationRoutes,
  ...signInRoutes,
  ...returnRoutes,
  signOutRoute,
  ...connectedAppsRoutes,
  ...yourAccountRoutes,
  ...wayBackRoutes,
  ...assetRoutes,
]
