"""Tampering: a ledger with every type of record, changed in each way one at a time. `ledger verify` and `docs/verify.py` both find each, and both name the record at
fault, or the file where no record can be: a cut end leaves none to name. The form of every field is unit tested; here are the two readers, over what the binary wrote."""

from __future__ import annotations

import json
import re
import shutil
import signal
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kit import Gate, Host, all_whole, answered, body, card, check, first, records, second, segments, sha, split_card, until

TYPES = {"open", "stop", "config", "decision", "outcome", "refused"}


def made(binary: str, folder: Path) -> Path:
    """A ledger of two runs, the first of them killed, with every type of record and every leaf and verdict."""
    hang = []

    def answer(_request):
        if hang:
            until(lambda: not hang, 10)
            return None
        return answered()

    host = Host(answer)
    gate = Gate(binary, host, folder, settings='segment_bytes = "4KiB"')
    try:
        gate.start()
        client = gate.client()
        number = 0
        for _ in range(3):
            number += 1
            check(client.call(card(), body(number)).status == 200, "a release")
            check(client.call(split_card(), b"{}").status == 200, "a split")
            check(client.call(card(egress_class="machine-local"), b"{}").status == 422, "a hold")
            check(client.call(card(residue=["customer_email", "no such class "]), b"{}").status == 422, "a hold for residue")
            check(client.call(card(), b'{"model":"tiny","messages":[]}\n{}').status == 422, "a refusal")
            check(client.call(card(), b"", "GET", "/v1/models").status == 200, "a local answer")
            check(gate.client().raw(b"GET / HTTP/1.0\r\n\r\n").status == 400, "a malformed message")
        for text, what in ((gate.text.replace('"label-61"', '"label-61", "one-more"'), "policy"), (gate.text + "nonsense\n", "error")):
            gate.policy.write_text(text)
            gate.proc.send_signal(signal.SIGHUP)
            check(until(lambda: any(r["t"] == "config" and what in r for r in records(gate.ledger)), 10), f"no config record with {what}")
        gate.policy.write_text(gate.text)
        gate.proc.send_signal(signal.SIGHUP)
        hang.append(True)
        threading.Thread(target=gate.client().call, args=(card(), body(99)), daemon=True).start()
        check(until(lambda: len(host.received) > 6, 10), "the call that is killed did not leave")
        gate.kill()
        hang.clear()
        gate.start()
        check(gate.client().call(card(), body(100)).status == 200, "a release of the second run")
        gate.stop()
    finally:
        if gate.proc is not None and gate.proc.poll() is None:
            gate.kill()
        host.close()
    return gate.ledger


class Copy:
    """The files of a ledger, to be changed and written elsewhere."""

    def __init__(self, source: Path):
        self.files = {path.name: path.read_bytes() for path in sorted(source.iterdir()) if path.is_file()}

    def names(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(".jsonl"))

    def lines(self) -> list[tuple[str, bytes]]:
        return [(name, line + b"\n") for name in self.names() for line in self.files[name].split(b"\n")[:-1]]

    def put(self, lines: list[tuple[str, bytes]]) -> None:
        for name in self.names():
            self.files[name] = b"".join(line for of, line in lines if of == name)

    def write(self, folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        return folder


def flips(lines: list[tuple[str, bytes]]):
    """One bit of the value of each field of each type of record, and one of its name."""
    seen = set()
    for seq, (_, line) in enumerate(lines):
        record = json.loads(line)
        for key, value in record.items():
            if (record["t"], key) in seen:
                continue
            seen.add((record["t"], key))
            text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
            at = line.index(b'"' + key.encode() + b'":' + text) + len(key) + 3
            middle = at + len(text) // 2
            yield f"{record['t']}.{key}", seq, middle
        if record["t"] not in {kind for kind, key in seen if key == ""}:
            seen.add((record["t"], ""))
            yield f"{record['t']}: a field's name", seq, 3


def flipped(copy: Copy, seq: int, at: int) -> None:
    lines = copy.lines()
    name, line = lines[seq]
    lines[seq] = (name, line[:at] + bytes([line[at] ^ 1]) + line[at + 1:])
    copy.put(lines)


def rechained(lines: list[tuple[str, bytes]], since: int) -> list[tuple[str, bytes]]:
    """`seq` and `prev` made anew from here on, as somebody does who has read the format."""
    out, prev = [], "0" * 64
    for seq, (name, line) in enumerate(lines):
        if seq >= since:
            record = {**json.loads(line), "seq": seq, "prev": prev}
            line = json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        prev = sha(line[:-1])
        out.append((name, line))
    return out


def edits(good: Copy, foreign: Copy):
    """Name, what is done to a copy, and the records that may be named: a set of `seq`, or None where the fault is a file's."""
    lines = good.lines()
    last, middle = len(lines) - 1, len(lines) // 2
    kinds = [json.loads(line)["t"] for _, line in lines]
    covered = len(lines)
    # A record that is neither the first nor the last of its segment: what is dropped there shows in `seq`, not in a name.
    inner = next(n for n in range(middle, last) if lines[n - 1][0] == lines[n][0] == lines[n + 1][0])
    edge = next(n for n in range(1, last) if lines[n][0] != lines[n + 1][0])

    def with_lines(change):
        def do(copy: Copy) -> None:
            found = copy.lines()
            changed = change(found)
            copy.put(found if changed is None else changed)
        return do

    def without(names):
        def do(copy: Copy) -> None:
            for name in names:
                del copy.files[name]
        return do

    def put(files):
        return lambda copy: copy.files.update(files)

    def tail(cut):
        def do(copy: Copy) -> None:
            name = copy.names()[-1]
            copy.files[name] = copy.files[name][:-cut]
        return do

    def renumbered(found):
        del found[inner]
        return [(name, re.sub(rb'"seq":[0-9]+', b'"seq":%d' % n, line)) for n, (name, line) in enumerate(found)]

    def swap(found):
        found[inner], found[inner + 1] = (found[inner][0], found[inner + 1][1]), (found[inner + 1][0], found[inner][1])

    for kind in sorted(TYPES - {"stop"}):
        n = next(n for n in range(1, last) if kinds[n] == kind)
        # At a segment's edge the next segment's name is what does not fit.
        at_edge = lines[n - 1][0] != lines[n][0] or lines[n + 1][0] != lines[n][0]
        yield f"drop a {kind}", with_lines(lambda found, n=n: found.pop(n) and None), {n, None} if at_edge else {n}
    yield "drop the first", with_lines(lambda found: found.pop(0) and None), {0, None}
    yield "drop the last", with_lines(lambda found: found.pop() and None), {None}
    yield "drop two", with_lines(lambda found: found.__delitem__(slice(inner, inner + 2))), {inner, None}
    yield "drop the last of a sealed segment", with_lines(lambda found: found.pop(edge) and None), {None}
    yield "swap two", with_lines(swap), {inner}
    yield "cut at a line", with_lines(lambda found: found[:last - 2]), {None}
    yield "cut within the last line", tail(30), {last, None}
    yield "cut the last newline", tail(1), {last, None}
    yield "cut a sealed segment within a line", lambda copy: copy.files.update({copy.names()[0]: copy.files[copy.names()[0]][:-9]}), {
        sum(name == good.names()[0] for name, _ in lines) - 1}
    yield "cut all but the first segment", without(good.names()[1:]), {None}
    yield "take a segment away", without(good.names()[1:2]), {None}
    yield "empty a segment", put({good.names()[1]: b""}), {None}
    yield "duplicate", with_lines(lambda found: found.insert(inner, found[inner])), {inner + 1}
    yield "duplicate the last", with_lines(lambda found: found.append(found[-1])), {last + 1}
    theirs = foreign.lines()
    yield "splice a record", with_lines(lambda found: found.__setitem__(inner, (found[inner][0], theirs[inner][1]))), {inner}
    yield "splice the end", with_lines(lambda found: found[:inner] + [(n, l) for (n, _), (_, l) in zip(found[inner:], theirs[inner:])]), {inner}
    yield "splice a record, chain made anew", with_lines(lambda found: rechained(
        [*found[:inner], (found[inner][0], theirs[inner][1]), *found[inner + 1:]], inner)), {inner}
    yield "another ledger's records", lambda copy: [copy.files.pop(name) for name in copy.names()] and copy.files.update(
        {name: foreign.files[name] for name in foreign.names()}), {0}
    yield "edit the last", with_lines(lambda found: found.__setitem__(last, (found[last][0], found[last][1].replace(b'"time":"20', b'"time":"21')))), {last}
    yield "edit the last, another number of bytes", with_lines(lambda found: found.__setitem__(last, (found[last][0], edited(found[last][1])))), {last}
    # Every hash is made anew: only the checkpoint stands against it, and what it covers ends with the last.
    hold = next(n for n, (_, line) in enumerate(lines) if b'"leaf":"hold"' in line)
    yield "a hold made a release, chain made anew", with_lines(lambda found: rechained(
        [*found[:hold], (found[hold][0], found[hold][1].replace(b'"leaf":"hold"', b'"leaf":"release"')), *found[hold + 1:]], hold)), {covered - 1}
    yield "renumber after a drop", with_lines(renumbered), {inner, None}
    yield "drop, chain made anew", with_lines(lambda found: rechained(found[:last], last)), {None}
    yield "an empty line", with_lines(lambda found: found.insert(inner, (found[inner][0], b"\n"))), {inner}
    yield "white space", with_lines(lambda found: found.__setitem__(inner, (found[inner][0], found[inner][1].replace(b'":', b'": ', 1)))), {inner}
    yield "a key twice", with_lines(lambda found: found.__setitem__(inner, (found[inner][0], b'{"v":1,' + found[inner][1][1:]))), {inner}
    yield "CR LF", with_lines(lambda found: found.__setitem__(inner, (found[inner][0], found[inner][1][:-1] + b"\r\n"))), {inner}
    for name in ("leafgate.pub", "checkpoint"):
        yield f"another ledger's {name}", put({name: foreign.files[name]}), {0, None}
        yield f"no {name}", without([name]), {None}
        yield f"nonsense for {name}", put({name: b"nonsense\n"}), {None}
        yield f"one bit of {name}", put({name: good.files[name][:-12] + bytes([good.files[name][-12] ^ 1]) + good.files[name][-11:]}), {0, None}
    yield "another ledger's key and checkpoint", put({name: foreign.files[name] for name in ("leafgate.pub", "checkpoint", "leafgate.key")}), {0}


def edited(line: bytes) -> bytes:
    return re.sub(rb'"policy":"..', b'"policy":"', line)


def named(text: str) -> int | None:
    """The record that a verifier's line names."""
    found = re.search(r"\brecord ([0-9]+)", text or "")
    return int(found[1]) if found else None


def judged(binary: str, copy: Copy, allowed: set, scratch: Path) -> str | None:
    """What is wrong with how the two verifiers took it; None where both are right."""
    folder = copy.write(scratch)
    status, found = first(binary, folder)
    status2, said2 = second(folder)
    said = found["problem"] or ""
    if status != 1 or found["ok"]:
        return f"ledger verify ends with {status}: {said}"
    if status2 not in (1, 2) or not said2 or "Traceback" in said2:
        return f"docs/verify.py ends with {status2}: {said2[-200:]}"
    if named(said) not in allowed:
        return f"ledger verify names {named(said)}, expected one of {allowed}: {said}"
    if named(said2) not in allowed:
        return f"docs/verify.py names {named(said2)}, expected one of {allowed}: {said2}"
    if named(said) == named(said2):
        return None
    return f"they name two records: {said!r} and {said2!r}"


def cases(binary: str, reader: str | None, short: bool):
    state: dict = {}

    def whole() -> str:
        top = Path(tempfile.mkdtemp(prefix="leafgate-tamper-"))
        state["top"] = top
        for name in ("good", "foreign"):
            (top / name).mkdir()
            state[name] = made(binary, top / name)
        found = all_whole(binary, state["good"], reader)
        kinds = {record["t"] for record in found}
        check(kinds == TYPES or kinds > TYPES, f"the ledger lacks {TYPES - kinds}")
        leaves = {(record["leaf"], record["verdict"]) for record in found if record["t"] == "decision"}
        check(leaves >= {("hold", "refuse"), ("split", "forward"), ("release", "forward"), ("release", "refuse"), ("release", "local")}, f"only {leaves}")
        check(any(record["t"] == "outcome" and record["sent"] == "unknown" for record in found), "no unknown outcome")
        return f"{len(found)} records, {len(segments(state['good']))} segments"

    def each(label: str, pick):
        def run() -> str:
            check("good" in state, "there is no ledger to tamper with")
            good, foreign = Copy(state["good"]), Copy(state["foreign"])
            work = list(pick(good, foreign))

            def one(number: int):
                name, change, allowed = work[number]
                copy = Copy(state["good"])
                change(copy)
                check(copy.files != good.files, f"{name}: nothing was changed")
                return name, judged(binary, copy, allowed, state["top"] / f"{label}-{number}")

            with ThreadPoolExecutor(3) as pool:
                found = list(pool.map(one, range(len(work))))
            wrong = [f"{name}: {why}" for name, why in found if why]
            check(not wrong, f"{len(wrong)} of {len(found)}:\n      " + "\n      ".join(wrong))
            return f"{len(found)} kinds found by both, the same record named"
        return run

    def bits(good: Copy, foreign: Copy):
        lines = good.lines()
        # In short every third field: which ones, says their order.
        for name, seq, at in list(flips(lines))[::3 if short else 1]:
            # Out of form, it shows in the record itself; in form, the next one does not follow; the last one is held by the checkpoint.
            yield f"flip {name}", lambda copy, seq=seq, at=at: flipped(copy, seq, at), {seq, min(seq + 1, len(lines) - 1)}

    def untouched() -> str:
        copy = Copy(state["good"]).write(state["top"] / "copy")
        all_whole(binary, copy, reader)
        shutil.rmtree(state["top"])
        return ""

    return [("tamper: a ledger of every type", whole), ("tamper: one bit of each field", each("flip", bits)), ("tamper: each other kind", each("edit", edits)),
            ("tamper: the twin, a copy as it is", untouched)]
