"""Answers which surveys an owner has, and the answers to them, from two SQL tables: Python with grpcio.

Stubs, into DIR/stubs, which is then on PYTHONPATH:
  npx buf generate -o DIR --path proto/surveyauth --path proto/buf --template '{"version":"v2",
    "plugins":[{"protoc_builtin":"python","out":"stubs"},{"local":"grpc_python_plugin","out":"stubs"}]}'
Libraries: grpcio, protobuf (Debian: python3-grpcio, python3-protobuf, protobuf-compiler-grpc).
Run: PROVIDER_LISTEN=unix:provider.sock PROVIDER_DATABASE=provider.db python3 examples/provider/python/provider.py
  examples/provider/demo.sql; for https://host:port also RPC_TLS_CA, RPC_TLS_CERT, RPC_TLS_KEY (PEM files) and
  PROVIDER_CALLERS, the names in certificates that may call: those of survey-auth, and of you who try it.
"""
import contextlib
import os
import pathlib
import signal
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import json_format
from surveyauth.provider.v1 import survey_provider_pb2 as pb
from surveyauth.provider.v1 import survey_provider_pb2_grpc as rpc
from surveyauth.v1 import answer_pb2, survey_pb2

LISTEN = os.environ["PROVIDER_LISTEN"]
CALLERS = os.environ.get("PROVIDER_CALLERS", "").encode().split(b",")
LARGEST = 2**53 - 1  # of an id, and of an offset
MAX_PAGE_BYTES = 3_500_000  # a message may have 4 MiB
SURVEY = "SELECT id, owner, hash, title, state, details FROM surveys WHERE owner = ?"
ANSWER = "SELECT answer_id, survey_id, respondent, end_time, details FROM answers WHERE survey_id = ?"


def connect():
    return contextlib.closing(sqlite3.connect(os.environ["PROVIDER_DATABASE"], timeout=1, isolation_level=None))


@contextlib.contextmanager
def reading(context):
    """One snapshot for all that an answer says."""
    try:
        with connect() as db:
            db.execute("BEGIN")
            yield db
    except sqlite3.Error as error:
        print(error, file=sys.stderr)
        context.abort(grpc.StatusCode.UNAVAILABLE, "the database cannot be read")


def check(context, request, **bounds):
    """Whether the caller may call, and may call with this. Proto3's zero stands for what was not sent."""
    peer = context.auth_context().get("x509_subject_alternative_name", [])
    if LISTEN.startswith("https://") and not set(peer) & set(CALLERS):
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate has no name of PROVIDER_CALLERS")
    if bounds and not request.HasField("owner"):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "owner must be set")
    if bounds and (len(request.owner.external_id) > 255 or len(request.owner.user_id) > 128):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "owner: external_id has 255 characters at most, user_id 128")
    for field, (least, most) in bounds.items():
        if not least <= getattr(request, field) <= most:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{field} must be {least} to {most}")


def survey_of(db, context, request):
    """Foreign and missing are one answer: nobody learns which ids exist."""
    row = db.execute(SURVEY + " AND id = ?", (request.owner.external_id, request.survey_id)).fetchone()
    return row or context.abort(grpc.StatusCode.NOT_FOUND, "the owner has no such survey")


def to_answer(row):
    answer_id, survey_id, respondent, end_time, details = row
    answer = answer_pb2.Answer(answer_id=answer_id, survey_id=survey_id, respondent_id=respondent)
    answer.end_time.seconds = end_time
    return json_format.Parse(details, answer)


def seconds(time):
    """The first whole second at or after a time: ours are whole."""
    return time.seconds + (time.nanos > 0)


class Provider(rpc.SurveyProviderServicer):
    def GetProviderInfo(self, request, context):
        check(context, request)
        answers = pb.PROVIDER_CAPABILITY_ANSWERS
        return pb.GetProviderInfoResponse(name="Example in Python", version="1.0", capabilities=[answers])

    def ListSurveys(self, request, context):
        check(context, request, offset=(0, LARGEST), limit=(1, 100))
        answer, owner = pb.ListSurveysResponse(), request.owner.external_id
        with reading(context) as db:
            [answer.total_size] = db.execute("SELECT count(*) FROM surveys WHERE owner = ?", [owner]).fetchone()
            page = db.execute(SURVEY + " ORDER BY id LIMIT ? OFFSET ?", (owner, request.limit, request.offset))
            for id, owner, hash, title, state, _ in page:
                summary = survey_pb2.SurveySummary(id=id, hash=hash, title=title, state=state)
                answer.surveys.add(survey=summary, owner=pb.Owner(external_id=owner))
        return answer

    def GetSurvey(self, request, context):
        check(context, request, survey_id=(1, LARGEST))
        with reading(context) as db:
            id, owner, hash, title, state, details = survey_of(db, context, request)
        survey = json_format.Parse(details, survey_pb2.Survey(id=id, hash=hash, title=title, state=state))
        return pb.GetSurveyResponse(survey=survey, owner=pb.Owner(external_id=owner))

    def ListAnswers(self, request, context):
        check(context, request, survey_id=(1, LARGEST), after_answer_id=(0, LARGEST), limit=(1, 1000))
        since = seconds(request.since) if request.HasField("since") else 0
        until = seconds(request.until) if request.HasField("until") else LARGEST
        between = (request.survey_id, since, until)
        with reading(context) as db:
            _, owner, *_ = survey_of(db, context, request)
            answer = pb.ListAnswersResponse(owner=pb.Owner(external_id=owner))
            where = " WHERE survey_id = ? AND end_time >= ? AND end_time < ?"
            [answer.total_size] = db.execute("SELECT count(*) FROM answers" + where, between).fetchone()
            rest = " AND end_time >= ? AND end_time < ? AND answer_id > ? ORDER BY answer_id LIMIT ?"
            for row in db.execute(ANSWER + rest, (*between, request.after_answer_id, request.limit)):
                answer.answers.append(to_answer(row))
                if answer.ByteSize() > MAX_PAGE_BYTES:
                    if len(answer.answers) > 1:
                        del answer.answers[-1]
                    break
        return answer

    def GetAnswer(self, request, context):
        check(context, request, survey_id=(1, LARGEST), answer_id=(1, LARGEST))
        with reading(context) as db:
            _, owner, *_ = survey_of(db, context, request)
            row = db.execute(ANSWER + " AND answer_id = ?", (request.survey_id, request.answer_id)).fetchone()
            if not row:
                context.abort(grpc.StatusCode.NOT_FOUND, "the survey has no such answer")
        return pb.GetAnswerResponse(answer=to_answer(row), owner=pb.Owner(external_id=owner))


def is_serving(request, context):
    """Health.Check of grpc.health.v1, as bytes: status SERVING. The package grpcio-health-checking has it whole."""
    with reading(context):
        return b"\x08\x01"


def main():
    with connect() as db:
        tables = pathlib.Path(__file__).parent.parent / "tables.sql"
        for script in (tables, *map(pathlib.Path, sys.argv[1:])):
            db.executescript(script.read_text())
    server = grpc.server(ThreadPoolExecutor(16))
    rpc.add_SurveyProviderServicer_to_server(Provider(), server)
    health = {"Check": grpc.unary_unary_rpc_method_handler(is_serving)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", health)])
    if LISTEN.startswith("https://"):
        ca, key, cert = (pathlib.Path(os.environ["RPC_TLS_" + name]).read_bytes() for name in ("CA", "KEY", "CERT"))
        both = grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)
        server.add_secure_port(LISTEN.removeprefix("https://"), both)
    elif LISTEN.startswith("unix:"):
        os.umask(0o177)  # whoever may open the socket may read everything
        server.add_insecure_port(LISTEN)
    else:
        sys.exit("PROVIDER_LISTEN must be unix:path or https://host:port")
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=5))
    server.start()
    print(f"answers at {LISTEN}", flush=True)
    server.wait_for_termination()


main()
