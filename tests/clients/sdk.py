"""The six cases of a library that raises: the document's ten lines, run as a program of their own for each case."""

from __future__ import annotations

import hashlib
import json

from harness import ANSWER, DOC_CARD, HELD_SAYS, Done, Kit, must


def calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def shows(done: Done, said: str) -> str:
    """How the client ended; the reason must be readable in what it printed."""
    must(done.status != 0 and said in done.text, f"exit status {done.status}, without {said!r}:\n{done.text[-1500:]}")
    return f"{ended(done)}, reason shown"


def ended(done: Done) -> str:
    """The exception that ended the client, or its exit status."""
    return f"`{done.error.split('.')[-1]}`" if done.error else f"exit status {done.status}"


def six_cases(kit: Kit, client: str, run, stream, *, fails: int = 3, held: int = 1, host_says: str = "the host is out of order") -> None:
    """`run(card, model)` and `stream(card, model)` make one call each; a host that fails is asked `fails` times."""
    done, seen = kit.seen(lambda: run())
    must(done.status == 0 and ANSWER in done.out, done.text[-1500:])
    seen.forwarded("release", 1)
    kit.row(client, released="1 call, answer shown")

    if stream is None:
        kit.row(client, streamed="never streams")
    else:
        done, seen = kit.seen(lambda: stream())
        must(done.status == 0 and (ANSWER in done.out or "|".join(ANSWER.split(" ")) in done.out.replace(" |", "|")), done.text[-1500:])
        seen.forwarded("release", 1)
        must(b'"stream":true' in seen.host[0].body.replace(b" ", b""), "no stream was asked for")
        kit.row(client, streamed="1 call, pieces shown as they come")

    done, seen = kit.seen(lambda: run(card=f"{DOC_CARD}-split"))
    must(done.status == 0 and ANSWER in done.out, done.text[-1500:])
    split(kit, seen)
    kit.row(client, split="1 call, four values at the host, its answer shown")

    for name, how in (("held", run), ("held, streamed", stream)):
        if how:
            done, seen = kit.seen(lambda how=how: how(card=f"{DOC_CARD}-held"))
            seen.nothing_left("residue_present", held)
            kit.row(client, **{name: f"{calls(held)}, {shows(done, HELD_SAYS)}"})
    if kit.rows[client].pop("held, streamed", kit.rows[client]["held"]) != kit.rows[client]["held"]:
        raise AssertionError("a hold looks different where a stream was asked for")

    done, seen = kit.seen(lambda: run(model="m-redirect"))
    redirected(seen, held)
    kit.row(client, redirect=f"{calls(held)}, {shows(done, 'redirect')}")

    done, seen = kit.seen(lambda: run(model="m-fails"))
    seen.forwarded("release", fails)
    must(all(o["status"] == 500 for o in seen.outcomes), f"outcomes: {seen.outcomes}")
    must(done.status != 0 and host_says in done.text, done.text[-1500:])
    kit.row(client, failing=f"{calls(fails)}, each recorded, {ended(done)}")


def for_a_run(kit: Kit, block: str, name: str, program: str) -> None:
    """The lines that point an unchanged program at leafgate, with the card in the base URL."""
    (kit.folder / name).write_text(program)
    done, seen = kit.seen(lambda: kit.shell(kit.block(block)))
    must(done.status == 0 and ANSWER in done.out, done.text[-1500:])
    seen.forwarded("release", 1)
    must(seen.decisions[0]["attach"] == "path", f"{seen.decisions}")


def split(kit: Kit, seen, count: int = 1) -> None:
    """The host has the four values in the policy's envelope and nothing else; the answer is marked as no score."""
    seen.forwarded("split", count)
    four = kit.gate.four_values()
    for one in seen.host:
        must(four == one_message(one.body) and len(one.body) < len(four) * 2, f"at the host: {one.body!r}")
        must("authorization" not in one.headers and "x-api-key" not in one.headers, f"at the host: {one.headers}")
    must(all(o.get("score") == "local" for o in seen.outcomes), f"outcomes: {seen.outcomes}")
    must(len({hashlib.sha256(one.body).hexdigest() for one in seen.host}) == 1, "two splits of one card differ at the host")


def one_message(body: bytes) -> str:
    value = json.loads(body)
    must(set(value) <= {"model", "messages", "max_tokens"} and len(value["messages"]) == 1, f"at the host: {body!r}")
    return value["messages"][0]["content"]


def redirected(seen, count: int) -> None:
    """The host was asked once for each call; nobody went where it points."""
    must([d["verdict"] for d in seen.decisions] == ["forward"] * count, f"decisions: {seen.decisions}")
    must([o.get("error") for o in seen.outcomes] == ["redirect_refused"] * count, f"outcomes: {seen.outcomes}")
    must(len(seen.host) == count and seen.elsewhere == 0, f"{len(seen.host)} at the host, {seen.elsewhere} elsewhere")
