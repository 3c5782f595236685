// Whoever is signed in, in every server alike.
export const NICKNAME = '小明 Xiaoming'
export const AVATAR = 'https://static.example.com/avatars/0123456789abcdef.png'
export const SCOPE = 'snsapi_user'
export const REDIRECT_URI = 'https://app.example.com/callback'
/** Of everybody in this service. */
export const PASSWORD = 'benchmark password'
