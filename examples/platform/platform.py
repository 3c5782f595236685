"""A platform whose own page signs people in for survey-auth: Python's standard library alone.

  GET  /sign-in?sign_in_challenge=…   asks what is wanted, then shows the form, or goes on at once for whoever is signed in here
  POST /sign-in                       checks the password, says who it is, and sends the browser back
  POST /cancel                        says that nobody signs in, and sends the browser back
  POST /sign-out                      ends the session here, and all sessions there

Run: RPC_URL=unix:data/rpc.sock PORT=8070 python3 examples/platform/platform.py; for https://host:port also RPC_TLS_CA,
RPC_TLS_CERT and RPC_TLS_KEY (PEM files; RPC_CALLERS gives the certificate the role sign_in).
"""

import hmac
import http.client
import json
import os
import secrets
import socket
import ssl
from datetime import datetime, timezone
from html import escape
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# By name. A real platform has hashes of passwords, a second factor and a limit on guesses.
USERS = {
    "ming": {"externalId": "1001", "nickname": "小明", "password": "ming-password"},
    "lan": {"externalId": "1002", "nickname": "Lan", "password": "lan-password"},
}
SESSIONS = {}  # token → (user, since)


class Refused(Exception):
    """`reason` is one of error.proto; `restart_uri` is where to send the browser, if anywhere."""

    def __init__(self, answer):
        super().__init__(answer.get("message"))
        infos = [detail["debug"] for detail in answer.get("details", []) if "reason" in detail.get("debug", {})]
        info = infos[0] if infos else {}
        self.reason = info.get("reason", answer.get("code"))
        self.restart_uri = info.get("metadata", {}).get("restart_uri")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connection():
    url = os.environ.get("RPC_URL", "unix:data/rpc.sock")
    if url.startswith("unix:"):
        return UnixConnection(url.removeprefix("unix:"))
    tls = ssl.create_default_context(cafile=os.environ["RPC_TLS_CA"])
    tls.load_cert_chain(os.environ["RPC_TLS_CERT"], os.environ["RPC_TLS_KEY"])
    return http.client.HTTPSConnection(urlsplit(url).netloc, context=tls, timeout=10)


def call(method, **message):
    server = connection()
    try:
        headers = {"Content-Type": "application/json", "Connect-Timeout-Ms": "4500"}
        server.request("POST", f"/surveyauth.v1.{method}", json.dumps(message), headers)
        response = server.getresponse()
        answer = json.load(response)
        if response.status != 200:
            raise Refused(answer)
        return answer
    finally:
        server.close()


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        challenge = parse_qs(urlsplit(self.path).query).get("sign_in_challenge", [""])[0]
        self.guarded(lambda: self.arrive(challenge) if challenge else self.home())

    def do_POST(self):
        # A form of another site must not sign anybody in or out here.
        if self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            return self.show("<h1>Not from here</h1>", 403)
        length = min(int(self.headers.get("Content-Length", 0)), 10_000)
        form = {name: values[0] for name, values in parse_qs(self.rfile.read(length).decode()).items()}
        steps = {"/sign-in": self.sign_in, "/cancel": self.cancel, "/sign-out": self.sign_out}
        step = steps.get(self.path)
        return self.guarded(lambda: step(form)) if step else self.show("<h1>Nothing is here</h1>", 404)

    def guarded(self, step):
        try:
            step()
        except Refused as refused:  # SIGN_IN_EXPIRED and SIGN_IN_DECIDED say where to begin anew
            if refused.restart_uri:
                self.redirect(refused.restart_uri)
            else:
                self.show(f"<h1>This does not work right now</h1><p>{escape(refused.reason)}</p>", 502)
        except OSError:
            self.show("<h1>This does not work right now</h1>", 502)

    def arrive(self, challenge):
        """Call 1 of 2: what is asked for. What has ended begins anew where it came from."""
        asked = call("SignInService/GetSignInRequest", signInChallenge=challenge)
        if asked["state"] not in ("SIGN_IN_STATE_PENDING", "SIGN_IN_STATE_ACCEPTED"):
            return self.redirect(asked["restartUri"])
        must_ask = asked.get("reauthenticate") or asked.get("selectAccount")
        if self.session() and not must_ask:
            return self.accept(challenge, self.session())
        return self.show(sign_in_page(challenge, asked.get("appName", "")))

    def sign_in(self, form):
        user = USERS.get(form.get("name", ""))
        challenge = form.get("sign_in_challenge", "")
        if not user or not hmac.compare_digest(user["password"].encode(), form.get("password", "").encode()):
            return self.show(sign_in_page(challenge, "", "That is not right."), 403)
        token = secrets.token_urlsafe(32)
        SESSIONS[token] = (user, datetime.now(timezone.utc))
        cookie = f"platform_session={token}; Path=/; HttpOnly; SameSite=Lax"  # over https also: Secure
        return self.accept(challenge, SESSIONS[token], cookie) if challenge else self.redirect("/", cookie)

    def accept(self, challenge, session, cookie=None):
        """Call 2 of 2: who it is."""
        user, since = session
        try:
            answer = call(
                "SignInService/AcceptSignIn",
                signInChallenge=challenge,
                externalId=user["externalId"],
                nickname=user["nickname"],
                authenticateTime=since.isoformat().replace("+00:00", "Z"),
            )
        except Refused as refused:
            if refused.reason != "USER_DISABLED":
                raise
            return self.reject(challenge, "SIGN_IN_REJECTION_NOT_ALLOWED")
        return self.redirect(answer["redirectTo"], cookie)

    def cancel(self, form):
        self.reject(form.get("sign_in_challenge", ""), "SIGN_IN_REJECTION_CANCELLED")

    def reject(self, challenge, reason):
        """Nobody signs in: the app is told so, or a page there says it."""
        self.redirect(call("SignInService/RejectSignIn", signInChallenge=challenge, reason=reason)["redirectTo"])

    def sign_out(self, _form):
        """Sessions there end too; what apps may do stays, until somebody ends it at /connect/apps."""
        session = self.session()
        if session:
            user = session[0]
            for token in [token for token, (owner, _) in SESSIONS.items() if owner is user]:
                del SESSIONS[token]
            try:
                call("AdminService/EndUserSessions", externalId=user["externalId"])
            except Refused as refused:
                if refused.reason != "NOT_FOUND":  # this person has never signed in there
                    raise
        self.redirect("/")

    def home(self):
        session = self.session()
        if not session:
            return self.show(f"<h1>Example platform</h1><p>Nobody is signed in.</p>{sign_in_form('')}")
        return self.show(
            f"<h1>Hello, {escape(session[0]['nickname'])}</h1>"
            '<form method="post" action="/sign-out"><button>Sign out everywhere</button></form>'
        )

    def session(self):
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("platform_session")
        return SESSIONS.get(cookie.value) if cookie else None

    def show(self, body, status=200):
        html = f'<!doctype html>\n<html lang="en"><head><title>Example platform</title></head><body>{body}</body></html>'
        self.answer(status, html, {"Content-Type": "text/html; charset=utf-8"})

    def redirect(self, location, cookie=None):
        self.answer(303, "", {"Location": location, **({"Set-Cookie": cookie} if cookie else {})})

    def answer(self, status, body, headers):
        data = body.encode()
        safe = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY"}
        self.send_response(status)
        for name, value in {**safe, **headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, *_):
        """Addresses hold challenges: they are not logged."""


def sign_in_page(challenge, app_name, message="Sign in"):
    purpose = f"<p>to connect {escape(app_name)}</p>" if app_name else ""
    cancel = f'<form method="post" action="/cancel">{hidden(challenge)}<button>Cancel</button></form>'
    return f"<h1>Example platform</h1><p>{message}</p>{purpose}{sign_in_form(challenge)}{cancel}"


def sign_in_form(challenge):
    return f"""<form method="post" action="/sign-in">{hidden(challenge)}
<p><label>Name <input name="name" autocomplete="username"></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password"></label></p>
<p><button>Sign in</button></p></form>"""


def hidden(challenge):
    return f'<input type="hidden" name="sign_in_challenge" value="{escape(challenge)}">'


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8070"))), Page)
    print(f"SIGN_IN_URL=http://127.0.0.1:{server.server_port}/sign-in", flush=True)
    server.serve_forever()
