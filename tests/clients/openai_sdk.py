"""The official OpenAI SDK, as a user has it, through leafgate to a host that this project did not write.

    tests/clients/run openai_sdk.py target/release/leafgate

A released, a streamed, a split and a held call, each with its twin. What is asserted comes from three sides: what the SDK hands
its user, what the ledger recorded, and what the host says it was given. The SDK keeps its defaults, retries among them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import openai

HERE = Path(__file__).resolve().parent
FIXTURE = "Name three colours that a leaf may have in autumn, and one that it never has, in a single line.\n"
FIXTURE_HASH = "sha256:" + hashlib.sha256(FIXTURE.encode()).hexdigest()
GLUE = "Answer the question between the lines, and nothing else:\n\n"
QUESTION = [{"role": "user", "content": GLUE + FIXTURE}]
PRIVATE = [{"role": "user", "content": "The customer at Canary Street 7 paid by card on Monday and asks for a refund."}]

RELEASE = {
    "fixture_id": "seed-04",
    "fixture_hash": FIXTURE_HASH,
    "egress_class": "public-fixture",
    "residue": [],
    "host_pin": "local",
    "replay_window": "24h",
    "writable_surface": "tmpdir",
}
SPLIT = {**RELEASE, "egress_class": "redacted-metadata", "failure_label": "wrong-answer"}
HELD = {**RELEASE, "residue": ["customer_email"]}
FOUR_VALUES = {
    "fixture_id": "seed-04",
    "fixture_hash": FIXTURE_HASH,
    "egress_class": "redacted-metadata",
    "failure_label": "wrong-answer",
}

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
models = ["tiny"]
bind = "cover"
split = {{ envelope = "chat", model = "tiny", max_tokens = 8 }}
"""

LOCK = """\
version = 1

[[fixture]]
id = "seed-04"
hash = "{hash}"
path = "fixtures/seed-04.txt"
format = "text"
glue = "fixtures/seed-04.glue.json"
"""


def header(card: dict) -> dict[str, str]:
    """The card as a header: unpadded base64url of its JSON."""
    coded = base64.urlsafe_b64encode(json.dumps(card).encode()).rstrip(b"=").decode()
    return {"leafgate-card": coded}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Host:
    """llama.cpp's server with a tiny model, in a process of its own."""

    def __init__(self, folder: Path):
        model = folder / "tiny.gguf"
        subprocess.run([sys.executable, HERE / "tiny_model.py", model], check=True)
        self.log = folder / "host.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "model_server.py", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        # A host that never comes up ends the test, not the patience of who waits for it.
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        self.base_url = self.process.stdout.readline().decode().strip()
        timer.cancel()
        if not self.base_url.startswith("http://127.0.0.1:"):
            raise RuntimeError(f"the host did not start: {self.log.read_text()[-800:]}")

    def tokens(self) -> int:
        """Prompt tokens that the host has processed or found in its cache since its start: any request moves it."""
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


class Gate:
    """One leafgate over a scratch folder."""

    def __init__(self, binary: str, folder: Path, host: str):
        self.binary, self.folder = binary, folder
        self.port, self.admin = free_port(), free_port()
        (folder / "cards").mkdir()
        (folder / "fixtures").mkdir()
        (folder / "fixtures/seed-04.txt").write_text(FIXTURE)
        (folder / "fixtures/seed-04.glue.json").write_text(json.dumps([GLUE]))
        (folder / "cards/seed-04.json").write_text(json.dumps(RELEASE))
        (folder / "fixtures.lock").write_text(LOCK.format(hash=FIXTURE_HASH))
        policy = folder / "policy.toml"
        policy.write_text(POLICY.format(proxy=self.port, admin=self.admin, host=host))
        self.log = folder / "leafgate.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [binary, "serve", "--policy", policy], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + 20
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

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return -1


class Run:
    """What each check is given: the gate, the host, and a client that counts the requests it makes."""

    def __init__(self, gate: Gate, host: Host):
        self.gate, self.host = gate, host
        self.requests = 0

    def client(self, **more) -> openai.OpenAI:
        """The SDK with its defaults (max_retries 2). The hook looks at each request that leaves it, retries included."""

        def count(_request) -> None:
            self.requests += 1

        http = openai.DefaultHttpxClient(event_hooks={"request": [count]})
        return openai.OpenAI(**{"base_url": self.gate.base_url, "api_key": "sk-canary-9c1", "http_client": http, **more})

    def decision(self, call: str) -> dict:
        found = [record for record in self.gate.records("decision") if record["call"] == call]
        assert len(found) == 1, f"{len(found)} decisions for one call"
        return found[0]


def ask(client: openai.OpenAI, card: dict | None, messages=QUESTION, **more):
    """One chat completion, raw, so that the headers can be seen."""
    extra = {} if card is None else {"extra_headers": header(card)}
    return client.chat.completions.with_raw_response.create(
        model="tiny", messages=messages, max_tokens=8, temperature=0, **extra, **more
    )


def said(raw, leaf: str, step: str, verdict: str, reason: str) -> str:
    """Asserts the leafgate-* headers of an answer; gives the call's id."""
    got = tuple(raw.headers.get(f"leafgate-{name}") for name in ("leaf", "step", "verdict", "reason"))
    assert got == (leaf, step, verdict, reason), got
    return raw.headers["leafgate-call"]


def released(run: Run) -> None:
    direct = openai.OpenAI(base_url=run.host.base_url, api_key="none").chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=8, temperature=0
    )
    raw = ask(run.client(), RELEASE)
    call = said(raw, "release", "5", "forward", "public_fixture")
    answer = raw.parse()
    assert answer.model == "tiny" and answer.usage.completion_tokens == 8, answer
    # The same bytes with and without leafgate give the same text: temperature is 0.
    assert answer.choices[0].message.content == direct.choices[0].message.content != "", answer
    assert "leafgate-score" not in raw.headers
    decision, outcome = run.decision(call), run.gate.outcome(call)
    assert decision["attach"] == "header" and decision["bind"]["mode"] == "cover", decision
    assert decision["body_len"] == decision["plan_len"] == outcome["sent_len"], (decision, outcome)
    assert decision["plan_sha256"] == outcome["sent_sha256"] and outcome["status"] == 200, (decision, outcome)
    assert "canary" not in json.dumps([decision, outcome])


def released_by_base_url_and_by_key(run: Run) -> None:
    by_path = run.client(base_url=f"http://127.0.0.1:{run.gate.port}/card/seed-04/v1")
    call = said(ask(by_path, None), "release", "5", "forward", "public_fixture")
    assert run.decision(call)["attach"] == "path"
    call = said(ask(run.client(api_key="card:seed-04"), None), "release", "5", "forward", "public_fixture")
    assert run.decision(call)["attach"] == "key"


def streamed(run: Run) -> None:
    whole = ask(run.client(), RELEASE).parse().choices[0].message.content
    raw = ask(run.client(), RELEASE, stream=True)
    call = said(raw, "release", "5", "forward", "public_fixture")
    assert raw.headers["content-type"].startswith("text/event-stream"), raw.headers
    chunks = [chunk for chunk in raw.parse()]
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(pieces) > 1 and "".join(pieces) == whole, (pieces, whole)
    assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
    outcome = run.gate.outcome(call)
    assert outcome["status"] == 200 and outcome["sent"] == "all" and "error" not in outcome, outcome


def split(run: Run) -> None:
    raw = ask(run.client(), SPLIT, PRIVATE)
    call = said(raw, "split", "4", "forward", "redacted_metadata")
    assert raw.headers["leafgate-score"] == "local"
    assert raw.parse().choices[0].message.content
    decision, outcome = run.decision(call), run.gate.outcome(call)
    four = json.dumps(FOUR_VALUES, separators=(",", ":"))
    sent = json.dumps(
        {"model": "tiny", "messages": [{"role": "user", "content": four}], "max_tokens": 8}, separators=(",", ":")
    ).encode()
    assert outcome["score"] == "local" and outcome["sent_len"] == decision["plan_len"] == len(sent), (decision, outcome)
    assert decision["plan_sha256"] == outcome["sent_sha256"] == hashlib.sha256(sent).hexdigest(), (decision, outcome)
    other = run.decision(said(ask(run.client(), SPLIT, QUESTION), "split", "4", "forward", "redacted_metadata"))
    assert other["plan_sha256"] == decision["plan_sha256"], "two splits of the same card differ on the wire"


def refused(run: Run, call, code: str, leaf: str, param: str) -> openai.UnprocessableEntityError:
    """Makes a call that must be refused: one request, one decision, no outcome, and nothing at the host."""
    decisions, outcomes = len(run.gate.records("decision")), len(run.gate.records("outcome"))
    tokens, requests = run.host.tokens(), run.requests
    try:
        call()
    except openai.UnprocessableEntityError as error:
        seen = error
    else:
        raise AssertionError("the call was not refused")
    assert (seen.code, seen.param, seen.type) == (code, param, "egress_refused"), seen.body
    said_first = str(seen)[:80]
    assert said_first.startswith("Error code: 422 - leafgate ") and leaf in said_first, str(seen)
    assert "Canary" not in str(seen) and "canary" not in str(seen)
    answer = seen.response
    assert answer.headers["leafgate-verdict"] == "refuse" and answer.headers["x-should-retry"] == "false", answer.headers
    time.sleep(1.5)  # longer than the SDK's first back-off, so that a retry on another thread would show too
    assert run.requests == requests + 1, f"{run.requests - requests} requests for one refused call"
    found = run.gate.records("decision")
    assert len(found) == decisions + 1, f"{len(found) - decisions} decisions for one refused call"
    assert found[-1]["call"] == answer.headers["leafgate-call"] and found[-1]["reason"] == code, found[-1]
    assert len(run.gate.records("outcome")) == outcomes, "a refused call has an outcome"
    assert run.host.tokens() == tokens, "the host was given something"
    return seen


def held(run: Run) -> None:
    error = refused(run, lambda: ask(run.client(), HELD, PRIVATE), "residue_present", "hold", "residue")
    assert error.response.headers["leafgate-step"] == "2" and "customer_email" in str(error)


def held_where_a_stream_was_asked_for(run: Run) -> None:
    error = refused(run, lambda: ask(run.client(), HELD, PRIVATE, stream=True), "residue_present", "hold", "residue")
    assert error.response.headers["content-type"] == "application/json"


def held_without_a_card(run: Run) -> None:
    decisions = len(run.gate.records("decision"))
    try:
        ask(run.client(), None, PRIVATE)
    except openai.UnprocessableEntityError as error:
        assert error.code == "card_missing", error.body
    else:
        raise AssertionError("a call without a card was not held")
    assert len(run.gate.records("decision")) == decisions + 1


def refused_because_the_body_is_not_the_fixture(run: Run) -> None:
    error = refused(run, lambda: ask(run.client(), RELEASE, PRIVATE), "body_unbound", "release", "body")
    assert error.response.headers["leafgate-leaf"] == "release"


CHECKS = [
    released,
    released_by_base_url_and_by_key,
    streamed,
    split,
    held,
    held_where_a_stream_was_asked_for,
    held_without_a_card,
    refused_because_the_body_is_not_the_fixture,
]


def ledger_verifies(gate: Gate) -> None:
    done = subprocess.run(
        [gate.binary, "ledger", "verify", gate.folder / "ledger"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    for name in [name for name in os.environ if "proxy" in name.lower() or name.startswith("OPENAI_")]:
        del os.environ[name]
    passed = failed = 0

    def check(name: str, call) -> None:
        nonlocal passed, failed
        try:
            call()
            passed += 1
            print(f"ok    {name}", flush=True)
        except Exception as error:  # a check may fail in any way, and the next one still runs
            failed += 1
            print(f"FAIL  {name}: {type(error).__name__}: {str(error)[:800]}", flush=True)

    with tempfile.TemporaryDirectory(prefix="leafgate-client-") as folder:
        host = Host(Path(folder))
        try:
            gate = Gate(str(Path(sys.argv[1]).resolve()), Path(folder), host.base_url)
            try:
                run = Run(gate, host)
                for one in CHECKS:
                    check(one.__name__, lambda one=one: one(run))
                check("ledger_verifies_while_it_runs", lambda: ledger_verifies(gate))
            finally:
                status = gate.stop()
            check("ends_well", lambda: must(status == 0, f"exit status {status}: {gate.log.read_text()[-800:]}"))
            check("ledger_verifies", lambda: ledger_verifies(gate))
        finally:
            host.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def must(holds: bool, why: str) -> None:
    """An assertion as an expression."""
    if not holds:
        raise AssertionError(why)


if __name__ == "__main__":
    sys.exit(main())
