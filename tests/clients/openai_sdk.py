"""The official OpenAI SDK, as a user has it, through leafgate to a host that this project did not write.

    tests/clients/run target/release/leafgate openai-sdk

A released, a streamed, a split and a held call, each with its twin. What is asserted comes from three sides: what the SDK hands
its user, what the ledger recorded, and what the host says it was given. The SDK keeps its defaults, retries among them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import openai
from harness import Gate, ModelServer, must

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


def header(card: dict) -> dict[str, str]:
    """The card as a header: unpadded base64url of its JSON."""
    coded = base64.urlsafe_b64encode(json.dumps(card).encode()).rstrip(b"=").decode()
    return {"leafgate-card": coded}


class Run:
    """What each check is given: the gate, the host, and a client that counts the requests it makes."""

    def __init__(self, gate: Gate, host: ModelServer):
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
        {"model": "tiny", "messages": [{"role": "user", "content": four}], "max_tokens": 64}, separators=(",", ":")
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


def main() -> int:
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
        scratch = Path(folder)
        host = ModelServer(scratch, sys.executable)
        try:
            (scratch / "seed-04.txt").write_text(FIXTURE)
            binary = str(Path(sys.argv[1]).resolve())
            gate = Gate(binary, scratch, host.base_url, [scratch / "seed-04.txt"], glue=[GLUE], models=("tiny",))
            try:
                run = Run(gate, host)
                for one in CHECKS:
                    check(one.__name__, lambda one=one: one(run))
                check("ledger_verifies_while_it_runs", gate.verify)
            finally:
                status = gate.stop()
            check("ends_well", lambda: must(status == 0, f"exit status {status}: {gate.log.read_text()[-800:]}"))
            check("ledger_verifies", gate.verify)
        finally:
            host.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
