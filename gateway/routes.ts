import { accessTokenRoute } from './api/access-token.js'
import { refreshTokenRoute } from './api/refresh-token.js'
import { surveyRoute } from './api/survey.js'
import { surveysRoute } from './api/surveys.js'
import { userRoute } from './api/user.js'
import type { Route } from './http.js'
import { pageRoutes } from './pages/page-routes.js'

/** The endpoints of spec 4.2 to 4.5. */
export const apiRoutes: readonly Route[] = [accessTokenRoute, refreshTokenRoute, userRoute, surveyRoute, surveysRoute]

/** Everything the gateway serves. */
export const routes: readonly Route[] = [...apiRoutes, ...pageRoutes]
