#!/bin/sh
# Verifies an access token and lists that user's surveys: curl, with Connect's JSON over a Unix socket, loopback or mTLS.
#
# Stubs: none; a field is written as in the protos, in camelCase.
# Retry: both calls only read, so --retry is right here: curl tries again after 503 (`unavailable`), and after 429, 500 and 504.
# Deadline: Connect-Timeout-Ms is the server's, 4.5 s as the gateway's; --max-time is curl's own, for the whole call.
# Run: TOKEN_SERVICE_URL=unix:data/rpc.sock SURVEY_SERVICE_URL=unix:data/rpc.sock APPID=… ACCESS_TOKEN=… OPENID=… sh
#      examples/rpc/curl.sh; http://127.0.0.1:port works too, and for https://host:port RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files).
set -eu

call() { # URL METHOD, the request on stdin: arguments can be read by every user of the machine
  case $1 in
    unix:*) set -- http://localhost "$2" --unix-socket "${1#unix:}" ;;
    http:*) set -- "$1" "$2" ;;
    *) set -- "$1" "$2" --cacert "$RPC_TLS_CA" --cert "$RPC_TLS_CERT" --key "$RPC_TLS_KEY" ;;
  esac
  url=$1/surveyauth.v1.$2
  shift 2
  curl --silent --show-error --fail-with-body --retry 2 --max-time 15 "$@" --data-binary @- \
    --header 'Content-Type: application/json' --header 'Connect-Timeout-Ms: 4500' "$url"
  echo
}

printf '{"appid":"%s","accessToken":"%s","openid":"%s"}' "$APPID" "$ACCESS_TOKEN" "$OPENID" |
  call "$TOKEN_SERVICE_URL" TokenService/VerifyAccessToken
printf '{"appid":"%s","accessToken":"%s","openid":"%s","pageSize":100}' "$APPID" "$ACCESS_TOKEN" "$OPENID" |
  call "$SURVEY_SERVICE_URL" SurveyService/ListSurveys
