"""What the ledger's tests share: a recording host, a running leafgate over a scratch folder, a client, and a reader of the ledger that shares nothing with
either verifier. Standard library only."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
PIN = "models.example.org"
TEXT = "def clamp(value, low, high):\n    \"\"\"Return value limited to the closed interval from low to high.\"\"\"\n    return max(low, min(value, high))\n"
HASH = "sha256:" + hashlib.sha256(TEXT.encode()).hexdigest()
GLUE = ["Explain this function in one sentence:\n\n", "\n\nAnswer:"]
LABELS = ["pass", "wrong-answer"] + [f"label-{n}" for n in range(62)]


class Failed(Exception):
    """What a check found."""


class Skip(Exception):
    """Why a check could not run."""


def check(holds, what: str) -> None:
    if not holds:
        raise Failed(what)


def card(**changes) -> dict:
    """A card that is released to the recording host; a change to None takes the field away."""
    base = {"fixture_id": "seed-04", "fixture_hash": HASH, "egress_class": "public-fixture", "residue": [], "host_pin": PIN,
            "replay_window": "24h", "writable_surface": "tmpdir", **changes}
    return {key: value for key, value in base.items() if value is not None}


def split_card(label: str = "wrong-answer", **changes) -> dict:
    return card(egress_class="redacted-metadata", failure_label=label, **changes)


def body(seed: int, times: int = 1) -> bytes:
    """Covered by the fixture, and another one for each seed. The seed stands first: a body that was cut short shows it."""
    content = GLUE[0] + TEXT * times + GLUE[1]
    return json.dumps({"seed": seed, "model": "tiny", "messages": [{"role": "user", "content": content}]}).encode()


def split_body(label: str) -> bytes:
    return json.dumps({"fixture_id": "seed-04", "fixture_hash": HASH, "egress_class": "redacted-metadata", "failure_label": label},
                      separators=(",", ":")).encode()


def packed(value: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def until(holds, seconds: float = 10.0, pause: float = 0.01) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


ANSWER = json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [
    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}]}).encode()


def answered(payload: bytes = ANSWER, headers: bytes = b"", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n" % (len(payload), headers) + payload


class Received:
    """One request as it came, also where it never came whole."""

    def __init__(self):
        self.raw = b""
        self.head: bytes | None = None
        self.length = 0
        self.body = b""

    @property
    def whole(self) -> bool:
        return self.head is not None and len(self.body) == self.length


class Host:
    """A host on loopback that keeps every byte it is given. `answer` gives the bytes of the answer; None closes the connection."""

    def __init__(self, answer=None, slow: int = 0):
        """`slow`: a body of more bytes than that is read a little at a time, so that a kill meets it on its way."""
        self.answer = answer or (lambda request: answered())
        self.slow = slow
        self.lock = threading.Lock()
        self.accepts = 0
        self.open = 0
        self.marker = 0
        self.received: list[Received] = []
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=256)
        if slow:
            # What a connection takes on before anybody reads.
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self.port = self.sock.getsockname()[1]
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                conn, peer = self.sock.accept()
            except OSError:
                return
            with self.lock:
                if peer[1] == self.marker:
                    self.marker = 0
                    conn.close()
                    continue
                self.accepts += 1
                self.open += 1
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        try:
            with conn:
                while self._one(conn):
                    pass
        except OSError:
            pass
        finally:
            with self.lock:
                self.open -= 1

    def _one(self, conn: socket.socket) -> bool:
        request = Received()
        while not request.whole:
            slow = 0 < self.slow < request.length
            if slow:
                time.sleep(0.002)
            piece = conn.recv(16384 if slow else 65536)
            if not piece:
                return False
            if not request.raw:
                with self.lock:
                    self.received.append(request)
            request.raw += piece
            if request.head is None and b"\r\n\r\n" in request.raw:
                head = request.raw.partition(b"\r\n\r\n")[0]
                length = re.search(rb"\r\ncontent-length: *([0-9]+)", head, re.I)
                request.length = int(length[1]) if length else 0
                request.head = head
            if request.head is not None:
                request.body = request.raw[len(request.head) + 4:]
        answer = self.answer(request)
        if answer is not None:
            conn.sendall(answer)
        return answer is not None

    def drained(self, seconds: float = 20) -> bool:
        """Waits until every connection that was made before has been accepted and read to its end. They are accepted in the order they were made: a connection of our
        own is the last of them."""
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.marker = sock.getsockname()[1]
            sock.connect(("127.0.0.1", self.port))
            return until(lambda: self.marker == 0 and self.open == 0, seconds)

    @property
    def wire(self) -> bytes:
        with self.lock:
            return b"".join(request.raw for request in self.received)

    def close(self) -> None:
        """The thread ends before the descriptor is free: it must not accept for the next host, whose socket may get the same number."""
        self.sock.shutdown(socket.SHUT_RDWR)
        self.accepting.join()
        self.sock.close()


class Reply:
    """One answer, or what came of it."""

    def __init__(self, raw: bytes):
        self.raw = raw
        self.head, _, self.body = raw.partition(b"\r\n\r\n")
        line, *rest = self.head.decode("latin-1").split("\r\n")
        parts = line.split(" ")
        self.status = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}

    @property
    def whole(self) -> bool:
        if b"\r\n\r\n" not in self.raw:
            return False
        if "content-length" in self.headers:
            return len(self.body) >= int(self.headers["content-length"])
        return "transfer-encoding" in self.headers and self.body.endswith(b"0\r\n\r\n")

    @property
    def reason(self) -> str:
        return self.headers.get("leafgate-reason", "")

    @property
    def call(self) -> str:
        return self.headers.get("leafgate-call", "")

    def __repr__(self) -> str:
        return f"<{self.status} {self.reason} {self.body[:120]!r}>"


class Client:
    """A client that keeps its connection while it may."""

    def __init__(self, port: int, timeout: float = 30.0):
        self.port, self.timeout = port, timeout
        self.sock: socket.socket | None = None

    def raw(self, data: bytes) -> Reply:
        """Sends these bytes and reads one answer, or as much of it as comes."""
        out = b""
        try:
            if self.sock is None:
                self.sock = socket.create_connection(("127.0.0.1", self.port), self.timeout)
            self.sock.sendall(data)
        except OSError:
            if self.sock is None:
                return Reply(b"")
        try:
            while not (reply := Reply(out)).whole:
                piece = self.sock.recv(65536)
                if not piece:
                    break
                out += piece
        except OSError:
            reply = Reply(out)
        if not reply.whole or reply.headers.get("connection", "").lower() == "close":
            self.close()
        return reply

    def call(self, value: dict | None, payload: bytes = b"", method: str = "POST", path: str = "/v1/chat/completions", more: bytes = b"") -> Reply:
        head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
        if value is not None:
            head += f"leafgate-card: {packed(value)}\r\n"
        if method == "POST":
            head += f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n"
        return self.raw(head.encode() + more + b"\r\n" + payload)

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


class Gate:
    """A leafgate over a scratch folder."""

    def __init__(self, binary: str, host: Host, folder: Path | None = None, settings: str = "", more: str = "", log: str = "info"):
        self.binary = str(Path(binary).resolve())
        self.dir = folder or Path(tempfile.mkdtemp(prefix="leafgate-ledger-"))
        self.ledger = self.dir / "ledger"
        self.proc: subprocess.Popen | None = None
        self.stderr = self.dir / "stderr.log"
        self.env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower() and not name.startswith("LEAFGATE_")}
        self.env["LEAFGATE_LOG"] = log
        self.port, self.admin = free_port(), free_port()
        (self.dir / "cards").mkdir(exist_ok=True)
        (self.dir / "seed-04.txt").write_text(TEXT)
        (self.dir / "seed-04.glue.json").write_text(json.dumps(GLUE))
        (self.dir / "fixtures.lock").write_text(f'version = 1\n[[fixture]]\nid = "seed-04"\nhash = "{HASH}"\npath = "seed-04.txt"\nformat = "text"\n'
                                                'glue = "seed-04.glue.json"\n')
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.policy = self.dir / "policy.toml"
        self.text = f"""version = 1
[listen]
proxy = "127.0.0.1:{self.port}"
admin = "127.0.0.1:{self.admin}"
[cards]
dir = "cards"
[fixtures]
lock = "fixtures.lock"
[ledger]
dir = "{self.ledger}"
{settings}
[split]
failure_labels = {json.dumps(LABELS)}
[hosts."{PIN}"]
base_url = "http://{PIN}:{host.port}/v1"
resolve = ["127.0.0.1"]
addresses = "loopback"
source = "https://example.org/models"
copied_at = {now}
models = ["tiny"]
bind = "cover"
{more}
"""
        self.policy.write_text(self.text)

    def spawn(self) -> None:
        with open(self.stderr, "ab") as log:
            self.proc = subprocess.Popen([self.binary, "serve", "--policy", str(self.policy)], cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log)

    def start(self) -> "Gate":
        self.spawn()
        check(until(self.listens, 20), f"leafgate did not start: {self.told()[-600:]}")
        return self

    def listens(self) -> bool:
        check(self.proc.poll() is None, f"leafgate ended with {self.proc.returncode}: {self.told()[-600:]}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def told(self) -> str:
        return self.stderr.read_text(errors="replace") if self.stderr.exists() else ""

    def client(self, timeout: float = 30.0) -> Client:
        return Client(self.port, timeout)

    def get(self, path: str) -> Reply:
        client = Client(self.admin, 10)
        reply = client.raw(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.admin}\r\nconnection: close\r\n\r\n".encode("latin-1"))
        client.close()
        return reply

    def kill(self) -> None:
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()

    def stop(self) -> int:
        if self.proc is None:
            return 0
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(40)
            except subprocess.TimeoutExpired:
                self.kill()
                raise Failed("leafgate did not stop within 40 s") from None
        return self.proc.returncode

    def remove(self) -> None:
        if self.proc is not None and self.proc.poll() is None:
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def command(self, *args: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.binary, *args], cwd=self.dir, env=self.env, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.jsonl"))


def records(folder: Path) -> list[dict]:
    """The whole lines of the ledger."""
    return [json.loads(line) for segment in segments(folder) for line in segment.read_bytes().split(b"\n")[:-1]]


def torn(folder: Path) -> int:
    """Bytes after the last newline of the newest segment."""
    files = segments(folder)
    return len(files[-1].read_bytes().rpartition(b"\n")[2]) if files else 0


def tree_root(lines: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, a level at a time."""
    level = [hashlib.sha256(b"\0" + line).digest() for line in lines]
    while len(level) > 1:
        level = [hashlib.sha256(b"\1" + level[n] + level[n + 1]).digest() if n + 1 < len(level) else level[n] for n in range(0, len(level), 2)]
    return level[0] if level else hashlib.sha256().digest()


def read_whole(folder: Path) -> list[dict]:
    """The third reader: chain, form, runs, one outcome for each forwarded decision, and the checkpoint's root. Fails where one does not hold."""
    lines: list[bytes] = []
    for segment in segments(folder):
        data = segment.read_bytes()
        check(int(segment.stem) == len(lines), f"{segment.name}: {len(lines)} records stand before it")
        check(not data or data.endswith(b"\n"), f"{segment.name}: torn")
        lines += data.split(b"\n")[:-1]
    out, prev, run, decided, outcomes = [], "0" * 64, None, {}, {}
    for seq, line in enumerate(lines):
        record = json.loads(line)
        check(json.dumps(record, sort_keys=True, separators=(",", ":")).encode() == line, f"record {seq}: form")
        check((record["seq"], record["prev"]) == (seq, prev), f"record {seq}: chain")
        prev = sha(line)
        if record["t"] == "open":
            run = record["run"]
        check(record["run"] == run, f"record {seq}: run")
        if record["t"] == "decision" and record["verdict"] == "forward":
            decided[seq] = record["call"]
        if record["t"] == "outcome":
            check(decided.get(record["of"]) == record["call"], f"record {seq}: the outcome of no decision")
            check(record["of"] not in outcomes, f"record {seq}: a second outcome of {record['of']}")
            outcomes[record["of"]] = record
        out.append(record)
    left = sorted(set(decided) - set(outcomes))
    check(not left, f"forwarded without an outcome: {left[:5]}")
    calls = [record["call"] for record in out if record["t"] == "decision"]
    check(len(calls) == len(set(calls)), "a call with two decisions")
    origin, size, root = (folder / "checkpoint").read_text().split("\n")[:3]
    check(int(size) <= len(lines), f"the checkpoint covers {size}, {len(lines)} are here")
    check(base64.b64decode(root) == tree_root(lines[:int(size)]), "the checkpoint has another root")
    check(not out or out[0]["log"].startswith("leafgate-"), "log")
    return out


def second(folder: Path) -> tuple[int, str]:
    """docs/verify.py"""
    done = subprocess.run([sys.executable, str(TOP / "docs/verify.py"), str(folder)], capture_output=True, text=True, timeout=300)
    return done.returncode, (done.stdout + done.stderr).strip()


def first(binary: str, folder: Path) -> tuple[int, dict]:
    """`ledger verify --json`"""
    done = subprocess.run([binary, "ledger", "verify", "--json", str(folder)], capture_output=True, text=True, timeout=300)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"ok": False, "problem": (done.stdout + done.stderr).strip(), "facts": {}}


def other_reader(reader: str | None, folder: Path) -> None:
    """A reader from outside the project, where one was named: it takes a folder and exits 0 where the ledger is whole."""
    if reader:
        done = subprocess.run([sys.executable, reader, str(folder)], capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, f"{Path(reader).name}: {done.stdout[-400:]}{done.stderr[-400:]}")


def all_whole(binary: str, folder: Path, reader: str | None = None) -> list[dict]:
    """Every reader finds this ledger whole; it may be a copy of a running one."""
    found = read_whole(folder)
    status, said = first(binary, folder)
    check((status, said["ok"]) == (0, True), f"ledger verify: {said['problem']}")
    check(said["records"] == len(found), f"ledger verify read {said['records']} records of {len(found)}")
    status, text = second(folder)
    check(status == 0, f"docs/verify.py: {text}")
    other_reader(reader, folder)
    return found
