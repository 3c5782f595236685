// Maximum lengths of parameters, the same as in the proto.
export const MAX_ID_LENGTH = 128 // appid, openid, ids of grants
export const MAX_SECRET_LENGTH = 512
export const MAX_REDIRECT_URI_LENGTH = 2048
/** Parameters that must be one of a few words. */
export const MAX_WORD_LENGTH = 128
