// The signed-in user, the same in every server.
export const NICKNAME = '小明 Xiaoming'
export const AVATAR = 'https://static.example.com/avatars/0123456789abcdef.png'
export const SCOPE = 'snsapi_user'
export const REDIRECT_URI = 'https://app.example.com/callback'
/** The password of every user of this service. */
export const PASSWORD = 'benchmark password'
