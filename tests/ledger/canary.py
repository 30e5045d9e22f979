"""Canaries: one string, in each place that a client, a card or a host can write, is afterwards in nothing that leafgate keeps or shows: ledger, log at its most
talkative, metrics, page, API, `ledger list` and `show`, exports. It was really sent: the twin looks for it in what was on the wire."""

from __future__ import annotations

import base64
import collections
import itertools
import json
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.parse

from kit import Client, Gate, Host, Skip, all_whole, answered, body, card, check, packed, records, sha, split_card, until

# What leafgate must have said in the course of it: the canary went down each of these paths.
REASONS = {
    "http_malformed", "not_found", "body_too_large", "head_too_large", "card_missing", "card_ambiguous", "card_malformed", "field_missing", "machine_local",
    "residue_present", "field_blank", "class_unknown", "route_not_allowed", "hash_malformed", "id_malformed", "pin_placeholder", "pin_unknown", "fixture_mismatch",
    "fixture_unknown", "label_unknown", "payload_contradicts", "media_not_allowed", "body_unbound", "redirect_refused", "host_malformed", "tls_failed",
    "redacted_metadata", "public_fixture", "client_timeout",
}


class Forms:
    """The canary and the forms in which it would still be it."""

    def __init__(self):
        # Mixed, so that a hit is no accident, and free of what a form would change.
        self.plain = "CANARY" + secrets.token_hex(8)
        raw = self.plain.encode()
        forms = {"plain": raw, "hex": raw.hex().encode(), "url": "".join(f"%{byte:02x}" for byte in raw).encode(),
                 "json": "".join(f"\\u{byte:04x}" for byte in raw).encode(), "html": "".join(f"&#{byte};" for byte in raw).encode(),
                 "list": ", ".join(str(byte) for byte in raw).encode()}
        for shift in range(3):
            # Base64 of the string where it does not begin at a group: the outer characters depend on the neighbours.
            text = base64.b64encode(b"\0" * shift + raw)
            forms[f"base64 at {shift}"] = text[4:len(text) - 4]
        self.forms = {name: form.lower() if not name.startswith("base64") else form for name, form in forms.items()}

    def found(self, data: bytes) -> list[str]:
        low = data.lower()
        return [name for name, form in self.forms.items() if form in (data if name.startswith("base64") else low)]


class Tour:
    """Sends the canary everywhere."""

    def __init__(self, binary: str):
        self.forms = Forms()
        self.c = self.forms.plain
        self.host = Host(self._answer)
        self.sent = bytearray()
        self.number = itertools.count()
        self.reasons: collections.Counter = collections.Counter()
        self.statuses: collections.Counter = collections.Counter()
        self.echoes: list[str] = []
        self.never: dict[str, str] = {}
        self.calls: list[str] = []
        more = f'[hosts.local]\nbase_url = "http://127.0.0.1:{self.host.port}/v1"\nmodels = ["tiny"]\n'
        more += '[limits]\nhead = "16KiB"\nbody = "256KiB"\nclient_head = "1s"\nclient_body = "1s"\nfirst_byte = "2s"\nidle = "2s"\n'
        self.gate = Gate(binary, self.host, settings='segment_bytes = "256KiB"\ncheckpoint_every = "1s"', more=more, log="trace")
        self.tls: socket.socket | None = None

    # What the host answers to each release: the body says which.
    def _answer(self, request) -> bytes:
        c = self.c.encode()
        model = json.dumps({"model": self.c, "choices": []}).encode()
        chunk = b"%x" % len(model)
        mode = re.search(rb'"mode":"([a-z-]+)"', request.body)
        answers = {
            b"body": answered(c), b"error": answered(b'{"error":{"message":"' + c + b'"}}', status=b"500 " + c), b"model": answered(model),
            b"headers": answered(headers=b"".join(name + b": " + c + b"\r\n" for name in (
                b"x-request-id", b"request-id", b"server", b"set-cookie", b"www-authenticate", b"openai-organization", b"x-" + c, b"leafgate-call", b"via",
                b"retry-after", b"x-ratelimit-limit-requests", b"anthropic-ratelimit", b"alt-svc", b"link"))),
            b"type": answered().replace(b"application/json", c), b"phrase": answered(status=b"418 " + c),
            b"redirect": answered(b"", b"location: http://" + c + b".example/" + c + b"\r\n", b"302 Found " + c),
            b"early": b"HTTP/1.1 103 " + c + b"\r\nlink: " + c + b"\r\n\r\n" + answered(),
            b"chunks": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunk + b";e=" + c + b"\r\n" + model
            + b"\r\n0;" + c + b"\r\nx-" + c + b": " + c + b"\r\n\r\n",
            b"badchunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + c + b"\r\n" + c + b"\r\n",
            b"sse": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\ndata: " % (len(model) + 8) + model
            + b"\n\n\r\n0\r\n\r\n",
            b"nothttp": c + b" " + c + b"\r\n\r\n", b"badstatus": b"HTTP/1.1 " + c + b" OK\r\n\r\n", b"badheader": b"HTTP/1.1 200 OK\r\n" + c + b"\r\n\r\n",
            b"badlength": b"HTTP/1.1 200 OK\r\ncontent-length: " + c + b"\r\n\r\n", b"coding": answered(headers=b"content-encoding: " + c + b"\r\n"),
            b"transfer": b"HTTP/1.1 200 OK\r\ntransfer-encoding: " + c + b"\r\n\r\n", b"upgrade": b"HTTP/1.1 101 " + c + b"\r\nupgrade: " + c + b"\r\n\r\n" + c,
            b"bighead": b"HTTP/1.1 200 OK\r\nx-big: " + c * 20000 + b"\r\n\r\n", b"short": answered().replace(b"content-length: ", b"content-length: 9") + c,
        }
        return answers.get(mode[1], answered()) if mode else answered()

    MODES = ("body", "error", "model", "headers", "type", "phrase", "redirect", "early", "chunks", "badchunk", "sse", "nothttp", "badstatus", "badheader", "badlength",
             "coding", "transfer", "upgrade", "bighead", "short")

    def wire(self, data: bytes, port: int | None = None, wait: float = 6.0, own: bool = True) -> None:
        """One message on a connection of its own. An answer that leafgate made (it says so) has no canary in it."""
        self.sent += data
        client = Client(port or self.gate.port, wait)
        reply = client.raw(data)
        client.close()
        self.statuses[reply.status] += 1
        if reply.reason:
            self.reasons[reply.reason] += 1
        if reply.call:
            self.calls.append(reply.call)
        made = reply.headers.get("leafgate-verdict") != "forward" and own
        if made and self.forms.found(reply.raw):
            self.echoes.append(f"{data[:60]!r}: {self.forms.found(reply.raw)} in {reply.raw[:300]!r}")

    def call(self, value: dict | None, payload: bytes = b"{}", path: str = "/v1/chat/completions", method: bytes = b"POST", headers: bytes = b"",
             kind: bytes = b"application/json", attach: bytes | None = None, gone: bool = False) -> None:
        if payload.startswith(b'{"model": "CANARY'):
            payload = b'{"n": %d, ' % next(self.number) + payload[1:]
        head = method + b" " + path.encode("latin-1") + b" HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % self.gate.port
        if attach is None and value is not None:
            attach = b"leafgate-card: " + packed(value).encode() + b"\r\n"
        head += (attach or b"") + headers
        if method == b"POST":
            head += (b"content-type: " + kind + b"\r\n" if kind else b"") + b"content-length: %d\r\n" % len(payload)
        else:
            payload = b""
        if not gone and len(payload) > 2:
            # A plain hash of a body that no decision let go is in no record.
            self.never[sha(payload)] = f"the hash of {payload[:40]!r}"
        self.wire(head + b"\r\n" + payload)

    def client_side(self) -> None:
        c, raw = self.c, self.c.encode()
        every = b"".join(name + b": " + raw + b"\r\n" for name in (
            b"user-agent", b"cookie", b"authorization", b"x-api-key", b"x-stainless-lang", b"traceparent", b"forwarded", b"x-forwarded-for", b"x-request-id",
            b"idempotency-key", b"anthropic-version", b"anthropic-beta", b"openai-organization", b"accept", b"accept-language", b"referer", b"leafgate-call",
            b"leafgate-token", b"leafgate-" + raw, b"x-" + raw, raw, b"via", b"proxy-authorization", b"from"))
        coded = b"".join(b"x-%d: " % n + form + b"\r\n" for n, form in enumerate(self.forms.forms.values()))
        full = json.dumps({"model": c, "mode": "body", "user": c, c: c, "messages": [{"role": c, "content": c}]}).encode()
        local = card(host_pin="local")
        # Every leaf, with the canary in body, headers and note.
        for value, gone in ((local, True), (card(), False), (split_card(), False), (split_card(host_pin="local"), False), (card(egress_class="machine-local"), False),
                            (None, False)):
            for headers in (b"", every, coded):
                noted = None if value is None else {**value, "note": c, "writable_surface": c}
                self.call(noted, full, headers=headers, gone=gone)
        for path in (f"/v1/{c}", f"/{c}", f"/v1/chat/completions?{c}", f"/v1/chat/completions?a={c}#{c}", f"/v1/chat/completions#{c}", f"/v1/./{c}", f"/v1//{c}",
                     "/v1/" + urllib.parse.quote(c, safe="") + "%41", f"/card/{c}/v1/chat/completions", f"/card/{c}!/v1/chat/completions", f"/card/{c}",
                     f"/card/../{c}/v1", f"http://{c}/v1/chat/completions", f"http://{c}@127.0.0.1:{self.gate.port}/v1/x", f"{c}", f"*{c}", f"/v1/{c}\xff"):
            for method in (b"POST", b"GET"):
                self.call(local, full, path, method)
        self.card_values(full)
        self.ways_to_attach(raw, full)
        for kind in (raw, b"application/json; charset=" + raw, b"text/" + raw, b"application/json; " + raw + b"=1"):
            self.call(local, full, kind=kind)
        for name in (b"content-encoding", b"expect", b"transfer-encoding", b"content-length", b"host", b"origin", b"sec-fetch-site", b"upgrade", b"connection",
                     b"te", b"trailer", b"content-type", b"keep-alive", b"proxy-connection"):
            self.call(local, full, headers=name + b": " + raw + b"\r\n")
        for payload in (c.encode() + b"?", b'{"' + raw, b'{"model":"' + raw + b'"}', json.dumps({**json.loads(body(1)), "user": c}).encode(),
                        json.dumps({**json.loads(body(1)), "tools": [{c: c}]}).encode(), json.dumps({**json.loads(body(1)), "model": c}).encode(),
                        raw * 20000):
            self.call(card(), payload)
            self.call(split_card(), payload)
        self.call(split_card(), json.dumps({"fixture_id": c}).encode())
        for label in (c + " !", c + "\u00e9", {c: c}, [c], 7):
            self.call(split_card(None), json.dumps({"failure_label": label, "fixture_id": c}).encode())
        self.messages(raw, local, full)

    def card_values(self, full: bytes) -> None:
        """Outside the grammar, each field; and cards that are malformed around the canary."""
        c = self.c
        for field in ("fixture_id", "fixture_hash", "egress_class", "host_pin", "replay_window", "writable_surface", "failure_label", "note"):
            for outside in (f"{c} \u00e9!", f"\n{c}", c + "x" * 300):
                for base in (card(), split_card(), card(residue=["a"])):
                    self.call({**base, field: outside}, full)
            for odd in ({c: c}, [c], None, 7):
                text = json.dumps({**card(), field: odd})
                self.call(None, full, attach=b"leafgate-card: " + text.encode() + b"\r\n")
        for items in ([f"{c} mail"], [f"{c}\u00e9", "session_cookie"], [f"{c} {n}" for n in range(60)], [{c: c}], c):
            self.call({**card(), "residue": items}, full)
        for changed in ({c: c}, {"Note": c}, {"fixture-id": c}):
            self.call({**card(), **changed}, full)
        good = json.dumps(card())
        for text in (c, f'"{c}"', f'["{c}"]', good[:-1] + f',"fixture_id":"{c}"}}', good + c, good[:-1] + f',"{c}":', "{'" + c + "'}",
                     good[:-1] + ',"note":"' + "".join(f"\\u{ord(x):04x}" for x in c) + '\\q"}'):
            self.call(None, full, attach=b"leafgate-card: " + text.encode() + b"\r\n")
            coded = base64.urlsafe_b64encode(text.encode())
            self.call(None, full, attach=b"leafgate-card: " + coded.rstrip(b"=") + b"\r\n")
            self.call(None, full, attach=b"leafgate-card: " + coded + b"=" + b"\r\n")
        for other in (card(fixture_hash="sha256:" + "0" * 64), card(fixture_id="unknown-1"), card(host_pin="free-server"), card(host_pin="nobody.example.org"),
                      card(replay_window=" "), card(replay_window=None), card(egress_class="public-fixtures"), card(fixture_hash="sha256:abc")):
            self.call({**other, "note": c}, full)

    def ways_to_attach(self, raw: bytes, full: bytes) -> None:
        for attach in (b"leafgate-card: @" + raw, b"leafgate-card: @" + raw + b"!", b"leafgate-card: @../" + raw, b"authorization: Bearer card:" + raw,
                       b"x-api-key: card:" + raw, b"authorization: Bearer card:" + raw + b" " + raw, b"authorization: Basic " + base64.b64encode(raw + b":" + raw),
                       b"leafgate-card: " + raw + b"\r\nleafgate-card: " + raw, b"leafgate-card: @held", b"leafgate-card: @broken", b"leafgate-card: @" + raw + b"-ok"):
            self.call(None, full, attach=attach + b"\r\n")
        two = packed(card(note=self.c)).encode()
        self.call(None, full, attach=b"leafgate-card: " + two + b"\r\nauthorization: Bearer card:" + raw + b"\r\n")

    def messages(self, raw: bytes, local: dict, full: bytes) -> None:
        """Messages that are not clean HTTP."""
        host = b"host: 127.0.0.1:%d\r\n" % self.gate.port
        held = b"leafgate-card: " + packed(local).encode() + b"\r\n"
        start = b"POST /v1/chat/completions HTTP/1.1\r\n" + host + held + b"content-type: application/json\r\n"
        for data in (
                raw + b"\r\n\r\n", raw + b" / HTTP/1.1\r\n" + host + b"\r\n", b"GET /" + raw + b" HTTP/1.0\r\n\r\n", b"GET / HTTP/1." + raw + b"\r\n\r\n",
                b"CONNECT " + raw + b":443 HTTP/1.1\r\nhost: " + raw + b":443\r\n\r\n", b"GET / HTTP/1.1\n" + raw + b": 1\n\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + raw, start + b" " + raw + b": folded\r\n\r\n", start + raw + b" : 1\r\n\r\n", start + b"x: " + raw + b"\0\r\n\r\n",
                start + b"content-length: 1\r\ncontent-length: " + raw + b"\r\n\r\n", start + b"transfer-encoding: chunked\r\n\r\n5;" + raw + b"=" + raw
                + b"\r\n" + raw[:5] + b"\r\n0\r\n" + raw + b": " + raw + b"\r\n\r\n", start + b"transfer-encoding: chunked\r\n\r\n" + raw + b"\r\n",
                start + b"transfer-encoding: chunked\r\n\r\n%x;e=%s\r\n" % (len(full), raw) + full + b"\r\n0;" + raw + b"\r\n\r\n",
                start + b"content-length: %d\r\nx-pad: " % len(full) + raw * 900 + b"\r\n\r\n" + full, start + b"content-length: 999999999\r\n\r\n" + raw,
                start + b"content-length: 5000\r\n\r\n" + full, b"POST /v1/" + raw, start + b"x-half: " + raw,
                b"GET /v1/models HTTP/1.1\r\n" + host + held + b"content-length: %d\r\n\r\n" % len(raw) + raw,
                start + b"content-length: %d\r\n\r\n" % len(full) + full + raw + b" /smuggled HTTP/1.1\r\n\r\n"):
            self.wire(data)
        hello = ssl.create_default_context()
        hello.check_hostname, hello.verify_mode = False, ssl.CERT_NONE
        hello.set_alpn_protocols([self.c[:20]])
        try:
            with socket.create_connection(("127.0.0.1", self.gate.port), 3) as sock:
                hello.wrap_socket(sock, server_hostname=self.c + ".example")
        except (OSError, ssl.SSLError):
            pass

    def host_side(self) -> None:
        for mode in self.MODES:
            for stream in (False, True):
                text = json.dumps({"model": "tiny", "mode": mode, "stream": stream, "messages": [{"role": "user", "content": self.c}]}, separators=(",", ":"))
                self.call(card(host_pin="local"), text.encode(), gone=True)
        self.call(card(host_pin="tls.example.org"), body(5), gone=True)

    def admin_side(self) -> None:
        c = self.c
        own = f"host: 127.0.0.1:{self.gate.admin}\r\n"
        for path in (f"/{c}", f"/?{c}", f"/metrics?{c}", f"/readyz?{c}", f"/api/records/{c}", f"/api/{c}", f"/api/export?format={c}", f"/../{c}",
                     *(f"/api/records?{key}={c}" for key in ("leaf", "t", "verdict", "reason", "fixture_id", "host", "call", "limit", "before", "after", c))):
            for method in ("GET", "POST", c):
                self.wire(f"{method} {path} HTTP/1.1\r\n{own}connection: close\r\n\r\n".encode(), self.gate.admin)
        for bad in (f"GET / HTTP/1.1\r\nhost: {c}\r\n\r\n", f"GET / HTTP/1.1\r\n{own}origin: http://{c}\r\n\r\n", f"GET / HTTP/1.1\r\n{own}cookie: {c}\r\n{c}: {c}\r\n\r\n",
                    f"GET / HTTP/1.1\r\n{own}sec-fetch-site: {c}\r\n\r\n", f"{c}\r\n\r\n", f"GET / HTTP/1.1\r\n{own}{c}\r\n\r\n"):
            self.wire(bad.encode(), self.gate.admin, 3)

    def prepare(self) -> None:
        """Cards in the store, and a TLS host whose certificate is made out to the canary."""
        cards = self.gate.dir / "cards"
        (cards / "held.json").write_text(json.dumps(card(note=self.c, writable_surface=self.c, egress_class="machine-local")))
        (cards / "broken.json").write_text('{"' + self.c + '": ')
        (cards / f"{self.c} out of grammar!.json").write_text(json.dumps(card()))
        if shutil.which("openssl") is None:
            return
        pem, key = self.gate.dir / "host.pem", self.gate.dir / "host.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key), "-out", str(pem), "-days", "2",
                        "-subj", f"/CN={self.c}", "-addext", f"subjectAltName=DNS:{self.c.lower()}.example"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, key)
        self.tls = socket.create_server(("127.0.0.1", 0))

        def accept():
            while True:
                try:
                    conn, _ = self.tls.accept()
                    context.wrap_socket(conn, server_side=True).close()
                except ssl.SSLError:
                    continue
                except OSError:
                    if self.tls.fileno() < 0:
                        return
        threading.Thread(target=accept, daemon=True).start()
        stamp = re.search(r"copied_at = (\S+)", self.gate.text)[1]
        self.gate.policy.write_text(self.gate.text + f'[hosts."tls.example.org"]\nbase_url = "https://tls.example.org:{self.tls.getsockname()[1]}/v1"\n'
                                    f'resolve = ["127.0.0.1"]\naddresses = "loopback"\nca = "host.pem"\ncopied_at = {stamp}\nmodels = ["tiny"]\nbind = "cover"\n')


class Search:
    """Where the canary is looked for, and what was found."""

    def __init__(self, tour: Tour):
        self.tour, self.places, self.hits = tour, 0, []

    def look(self, place: str, data: bytes) -> None:
        self.places += 1
        found = self.tour.forms.found(data)
        if found:
            line = next((line for line in data.split(b"\n") if self.tour.forms.found(line)), b"")
            at = max(0, min((line.lower().find(self.tour.forms.forms[name].lower()) for name in found), default=0) - 160)
            self.hits.append(f"{place}: {', '.join(found)}: …{line[at:at + 300].decode('latin-1')}")
        low = data.decode("latin-1")
        self.hits += [f"{place}: {what}" for digest, what in self.tour.never.items() if digest in low]

    def command(self, *args: str, ok: bool = True) -> bytes:
        done = self.tour.gate.command(*args)
        check(done.returncode == 0 or not ok, f"leafgate {' '.join(args)} ends with {done.returncode}: {done.stderr[-300:]}")
        self.look(f"leafgate {' '.join(args)}", done.stdout + done.stderr)
        return done.stdout


def cases(binary: str, reader: str | None, short: bool):
    tour = Tour(binary)
    search = Search(tour)
    ready: list[bool] = []

    def send() -> str:
        tour.prepare()
        tour.gate.start()
        tour.client_side()
        tour.host_side()
        tour.admin_side()
        check(until(lambda: sum(r["t"] == "outcome" for r in records(tour.gate.ledger)) == sum(
            r["t"] == "decision" and r["verdict"] == "forward" for r in records(tour.gate.ledger)), 10), "outcomes are missing")
        ready.append(True)
        for request in tour.host.received:
            tour.never.pop(sha(request.body), None)
        check(len(tour.never) > 100, f"only {len(tour.never)} bodies stayed here")
        wanted = REASONS - (set() if tour.tls else {"tls_failed"})
        decided = {record.get("reason") for record in records(tour.gate.ledger)} | set(tour.reasons)
        check(wanted <= decided, f"the canary did not come to {sorted(wanted - decided)}")
        check(tour.forms.plain.encode() in bytes(tour.sent), "it was not sent")
        check(tour.forms.plain.encode() in tour.host.wire, "it did not reach the host in a release")
        check(tour.gate.proc.poll() is None, "leafgate ended")
        return f"{sum(tour.statuses.values())} messages, {sum(tour.sent.count(f) for f in tour.forms.forms.values())} canaries, {len(decided)} reasons"

    def certificate() -> str:
        check(ready, "nothing was sent")
        if tour.tls is None:
            raise Skip("openssl is not installed")
        check(tour.reasons["tls_failed"] > 0, "no call met the certificate")
        return "made out to the canary, refused with tls_failed"

    def searcher() -> str:
        """The twin: each form is found where it stands, and the log was written."""
        for name, form in tour.forms.forms.items():
            check(name in tour.forms.found(b"x" + form + b"y"), f"{name} is not found")
        text = f'{{"note":"{tour.c}"}}'.encode()
        for shift in range(3):
            check(tour.forms.found(base64.b64encode(b"a" * shift + text)), "base64 is not found")
            check(tour.forms.found(base64.urlsafe_b64encode(b"a" * shift + text)), "base64url is not found")
        check(tour.forms.found(tour.host.wire), "not in what the host received")
        # There is no line below `info` today; were there one, it would be in this log.
        lines = tour.gate.told().count("leafgate::call")
        check(lines > 200 and tour.gate.env["LEAFGATE_LOG"] == "trace", f"{lines} lines in the log")
        return f"{len(tour.forms.forms)} forms, {lines} calls in the log"

    def answers() -> str:
        check(ready, "nothing was sent")
        check(not tour.echoes, f"{len(tour.echoes)} answers that leafgate made quote it:\n      " + "\n      ".join(tour.echoes[:12]))
        return f"{len(tour.reasons)} reasons, statuses {dict(sorted(tour.statuses.items()))}"

    def shown() -> str:
        check(ready, "nothing was sent")
        gate = tour.gate
        before = None
        exports = [f"/api/export?format={form}" for form in ("jsonl", "csv", "ocsf", "html")]
        for path in ("/", "/metrics", "/healthz", "/readyz", "/api/records", "/api/records?limit=500", "/api/export", *exports):
            search.look(f"admin {path}", gate.get(path).raw)
        while True:
            page = gate.get("/api/records?limit=200" + (f"&before={before}" if before is not None else ""))
            check(page.status == 200, f"/api/records: {page}")
            search.look("admin /api/records", page.raw)
            found = json.loads(page.body)
            before = found.get("next")
            if before is None:
                break
        for seq in range(0, len(records(gate.ledger)), 5):
            search.look(f"admin /api/records/{seq}", gate.get(f"/api/records/{seq}").raw)
        return finish(search)

    def kept() -> str:
        check(ready, "nothing was sent")
        gate = tour.gate
        check(gate.stop() == 0, "the stop")
        all_whole(binary, gate.ledger, reader)
        for path in sorted(gate.ledger.iterdir()):
            search.look(f"ledger/{path.name}", path.read_bytes())
        search.look("the log", gate.stderr.read_bytes())
        for args in (("verify",), ("list", "--limit", "500"), ("list", "--limit", "500", "--json")):
            search.command("ledger", args[0], str(gate.ledger), *args[1:])
        for call in tour.calls[::6]:
            search.command("ledger", "show", call, str(gate.ledger))
        return finish(search) + f", a log of {gate.stderr.stat().st_size} bytes"

    def exported() -> str:
        check(ready, "nothing was sent")
        gate = tour.gate
        if gate.command("ledger", "export", "--help").returncode != 0:
            raise Skip("this build has no `ledger export`")
        size = 0
        for form in ("jsonl", "csv", "ocsf", "html"):
            size += len(search.command("ledger", "export", str(gate.ledger), "--format", form))
        for path in gate.dir.rglob("*"):
            if path.is_file() and path.stat().st_mtime > gate.stderr.stat().st_mtime:
                search.look(str(path), path.read_bytes())
                size += path.stat().st_size
        check(size > 1000, "the exports are empty")
        if gate.command("ledger", "explain", "--help").returncode == 0:
            search.command("ledger", "explain", "seed-04", str(gate.ledger), ok=False)
        return finish(search)

    def done() -> str:
        gate = tour.gate
        if gate.proc is not None and gate.proc.poll() is None:
            gate.kill()
        tour.host.close()
        if tour.tls:
            tour.tls.close()
        if not keep:
            gate.remove()
            return ""
        return f"the files are kept in {gate.dir}"

    def finish(found: Search) -> str:
        places, hits = found.places, found.hits
        found.places, found.hits = 0, []
        if hits:
            keep.append(True)
        check(not hits, f"{len(hits)} of {places} places:\n      " + "\n      ".join(hits[:12]))
        return f"in none of {places} places"

    keep: list[bool] = []
    return [("canary: sent", send), ("canary: in a host's certificate", certificate), ("canary: the twin, what is searched for is found", searcher),
            ("canary: leafgate's own answers", answers),
            ("canary: page, metrics, API", shown), ("canary: ledger, log, list, show", kept), ("canary: exports", exported), ("canary: scratch files", done)]
