"""Verifies an access token and lists that user's surveys: Python with grpcio.

Stubs, into DIR/stubs, which is then on PYTHONPATH:
  npx buf generate -o DIR --path proto/surveyauth/v1 --path proto/buf --template '{"version":"v2",
    "plugins":[{"protoc_builtin":"python","out":"stubs"},{"local":"grpc_python_plugin","out":"stubs"}]}'
or, with grpcio-tools in place of protoc and the plugin:
  python3 -m grpc_tools.protoc -I proto --python_out=stubs --grpc_python_out=stubs $(cd proto && ls buf/*/* surveyauth/v1/*)
Libraries: grpcio, protobuf (Debian: python3-grpcio, python3-protobuf, protobuf-compiler-grpc).
Retry: both calls only read, so UNAVAILABLE may be retried, after a pause; other failures would only repeat.
Deadline: 4.5 s, as the gateway's; without one a call may take the server's maximum, 30 s.
Run: TOKEN_SERVICE_URL=unix:data/rpc.sock SURVEY_SERVICE_URL=unix:data/rpc.sock APPID=... ACCESS_TOKEN=... OPENID=...
  python3 examples/rpc/client.py; http://127.0.0.1:port works too, and for https://host:port RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files).
"""
import os
import pathlib
import sys

import grpc
from surveyauth.v1 import survey_service_pb2, survey_service_pb2_grpc, token_service_pb2, token_service_pb2_grpc


def channel(url):
    if not url.startswith("https://"):
        return grpc.insecure_channel(url.removeprefix("http://"))  # a Unix socket, or loopback
    ca, key, cert = (pathlib.Path(os.environ["RPC_TLS_" + name]).read_bytes() for name in ("CA", "KEY", "CERT"))
    return grpc.secure_channel(url.removeprefix("https://"), grpc.ssl_channel_credentials(ca, key, cert))


who = {name.lower(): os.environ[name] for name in ("APPID", "ACCESS_TOKEN", "OPENID")}
try:
    with channel(os.environ["TOKEN_SERVICE_URL"]) as tokens, channel(os.environ["SURVEY_SERVICE_URL"]) as surveys:
        request = token_service_pb2.VerifyAccessTokenRequest(**who)
        token = token_service_pb2_grpc.TokenServiceStub(tokens).VerifyAccessToken(request, timeout=4.5)
        print(token.openid, token.scope)
        request = survey_service_pb2.ListSurveysRequest(**who, page_size=100)
        answer = survey_service_pb2_grpc.SurveyServiceStub(surveys).ListSurveys(request, timeout=4.5)
        for survey in answer.surveys:
            print(survey.id, survey.title)
except grpc.RpcError as error:
    sys.exit(f"{error.code().name} {error.details()}")  # the reason: rpc_status.from_call(error) of grpcio-status
