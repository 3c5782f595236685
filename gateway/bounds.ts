// The longest parameters that are read, the same as in the proto.
export const MAX_ID_LENGTH = 128 // appid, openid, ids of grants
export const MAX_CREDENTIAL_LENGTH = 512 // secret, code, tokens
export const MAX_REDIRECT_URI_LENGTH = 2048
/** Of what must be one of a few words. */
export const MAX_WORD_LENGTH = 128
