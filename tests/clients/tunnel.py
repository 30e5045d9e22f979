"""The official OpenAI SDK with nothing but a proxy variable, through a tunnel of leafgate to a host with TLS.

    tests/clients/run target/release/leafgate tunnel

Needs the `openssl` command, for the host's certificate. The SDK is told of leafgate by HTTPS_PROXY and SSL_CERT_FILE alone; its base URL is the host's own. A released, a held and a split call,
a host that the policy does not have, and curl where it is there.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

HOST = "models.example.org"
FIXTURE = "Name three colours that a leaf may have in autumn, and one that it never has, in a single line.\n"
HASH = "sha256:" + hashlib.sha256(FIXTURE.encode()).hexdigest()
ANSWER = {"id": "1", "object": "chat.completion", "created": 1, "model": "tiny",
          "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "red"}}]}
RELEASE = {"fixture_id": "seed-04", "fixture_hash": HASH, "egress_class": "public-fixture", "residue": [],
           "host_pin": HOST, "replay_window": "24h", "writable_surface": "tmpdir"}
CARDS = {"release": RELEASE, "held": {**RELEASE, "residue": ["customer_email"]},
         "split": {**RELEASE, "egress_class": "redacted-metadata", "failure_label": "wrong-answer"}}
CLIENT = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="card:" + sys.argv[2], max_retries=0)
try:
    print(client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": sys.argv[3]}]).choices[0].message.content)
except openai.APIStatusError as error:
    print(error.status_code, error.code)
except openai.APIConnectionError as error:
    print("no connection")
"""


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, dict[str, str], bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, dict(self.headers.items()), body))
        answer = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def host(folder: Path) -> int:
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=host",
                    "-addext", f"subjectAltName=DNS:{HOST}", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", folder / "host.key", "-out", folder / "host.pem"], check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "host.pem", folder / "host.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main() -> None:
    leafgate = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port, proxy, admin = host(folder), free_port(), free_port()
        (folder / "cards").mkdir()
        for card, value in CARDS.items():
            (folder / "cards" / f"{card}.json").write_text(json.dumps(value))
        (folder / "seed.txt").write_text(FIXTURE)
        subprocess.run([leafgate, "fixture", "add", "seed.txt", "--id", "seed-04", "--lock", "fixtures.lock"], cwd=folder, check=True, capture_output=True)
        policy = folder / "policy.toml"
        policy.write_text(f'''version = 1
[listen]
proxy = "127.0.0.1:{proxy}"
admin = "127.0.0.1:{admin}"
[cards]
dir = "cards"
[intercept]
ca = "certs/ca.pem"
key = "certs/ca-key.pem"
[hosts."{HOST}"]
base_url = "https://{HOST}:{port}/v1"
resolve = ["127.0.0.1"]
addresses = "loopback"
ca = "host.pem"
models = ["tiny"]
bind = "cover"
''')
        told = subprocess.run([leafgate, "certs", "init", "certs", "--policy", policy], cwd=folder, check=True, capture_output=True, text=True).stdout
        environment = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
        for line in told.splitlines():
            if line.startswith("  export "):
                key, _, value = line.removeprefix("  export ").partition("  #")[0].partition("=")
                environment[key] = value.strip("'")
        served = subprocess.Popen([leafgate, "serve", "--policy", policy], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait(admin)
            ran = lambda base, card, text: subprocess.run([sys.executable, "-c", CLIENT, base, card, text], env=environment, capture_output=True, text=True, timeout=60).stdout.strip()
            base = f"https://{HOST}:{port}/v1"
            check("a release", ran(base, "release", FIXTURE), "red")
            check("a held call", ran(base, "held", "The customer at Canary Street 7 asks for a refund."), "422 residue_present")
            check("a split", ran(base, "split", "The customer at Canary Street 7 asks for a refund."), "red")
            check("another host", ran("https://other.example.org/v1", "release", FIXTURE), "no connection")
            if shutil.which("curl"):
                curl = subprocess.run(["curl", "-sS", "--cacert", environment["SSL_CERT_FILE"], "-H", "leafgate-card: @release", "-H", "content-type: application/json",
                                       "-d", json.dumps({"model": "tiny", "messages": [{"role": "user", "content": FIXTURE}]}), f"{base}/chat/completions"], env=environment, capture_output=True, text=True)
                check("curl", curl.stdout, json.dumps(ANSWER))
            sent = b"".join(body for _, _, body in Answers.seen) + json.dumps([head for _, head, _ in Answers.seen]).encode()
            check("what the host was given", (b"Canary" in sent, b"card:" in sent), (False, False))
        finally:
            served.terminate()
            served.wait()
        verify = subprocess.run([leafgate, "ledger", "verify", folder / "ledger"], capture_output=True, text=True)
        check("the ledger", verify.returncode, 0)


def wait(admin: int) -> None:
    for _ in range(200):
        try:
            return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{admin}/readyz", timeout=1).close()
        except OSError:
            threading.Event().wait(0.05)
    raise SystemExit("leafgate did not start")


def check(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise SystemExit(f"FAIL {what}: got {got!r}, expected {wanted!r}")
    print(f"ok   {what}")


main()
