"""Faults of the disk under the release binary, put into its system calls by strace, and hands on the files while it runs. Each latches: the call in flight and all
after it are refused, nothing reaches the host any more, `/readyz` says why, no sync is tried again, and a restart mends what it must. Each has its twin without the fault."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from kit import Failed, Gate, Host, Skip, all_whole, body, card, check, first, records, segments, sha, until

CALLERS = 8
AFTER = 12
SYNCS = ("fdatasync", "fsync")
# The system's own words for what is injected: a person reads them in /readyz.
SAYS = {name: os.strerror(getattr(errno, name)) for name in ("EIO", "ENOSPC", "EROFS", "EDQUOT", "EMFILE")}


class Fault:
    """What is injected: strace's `inject` expression, the files it is filtered on, and what must be seen."""

    def __init__(self, name: str, inject: str, on: str, why: str, latches: bool = True, settings: str = ""):
        self.name, self.inject, self.on, self.why, self.latches = name, inject, on, why, latches
        self.settings = settings


SMALL = 'segment_bytes = "8KiB"'
FAULTS = [
    Fault("write ENOSPC", "write:error=ENOSPC:when=1", "segment", "the write failed"),
    Fault("write EIO at the fifth", "write:error=EIO:when=5", "segment", "the write failed"),
    Fault("write EROFS", "write:error=EROFS:when=2", "segment", "the write failed"),
    Fault("write ENOSPC from the third on", "write:error=ENOSPC:when=3+", "segment", "the write failed"),
    Fault("short write", "write:retval=40:when=1", "segment", "the write failed"),
    Fault("short write at the fourth", "write:retval=1:when=4", "segment", "the write failed"),
    Fault("write of nothing", "write:retval=0:when=2", "segment", "the write failed"),
    Fault("fdatasync EIO", "fdatasync:error=EIO:when=1", "segment", "the sync failed"),
    Fault("fdatasync EIO at the fifth", "fdatasync:error=EIO:when=5", "segment", "the sync failed"),
    Fault("fdatasync ENOSPC", "fdatasync:error=ENOSPC:when=2", "segment", "the sync failed"),
    Fault("fdatasync EDQUOT", "fdatasync:error=EDQUOT:when=1", "segment", "the sync failed"),
    Fault("looking at the segment EIO", "statx:error=EIO:when=1", "segment", "the segment cannot be looked at"),
    Fault("new segment ENOSPC", "openat:error=ENOSPC:when=1", "next", "the next segment cannot be made", settings=SMALL),
    Fault("new segment EMFILE", "openat:error=EMFILE:when=1", "next", "the next segment cannot be made", settings=SMALL),
    Fault("new segment's sync EIO", "fsync:error=EIO:when=1", "next", "the next segment cannot be made", settings=SMALL),
    Fault("checkpoint's rename EIO", "rename:error=EIO:when=1", "checkpoint", "the checkpoint cannot be written", latches=False,
          settings='checkpoint_every = "1s"'),
    Fault("checkpoint's sync ENOSPC", "fsync:error=ENOSPC:when=1", "checkpoint", "the checkpoint cannot be written", latches=False,
          settings='checkpoint_every = "1s"'),
]
TWINS = [
    Fault("no fault", "", "segment", ""),
    Fault("no fault at a rotation", "", "next", "", settings=SMALL),
    # The writer's file is the only one that is filtered on: a fault elsewhere is nobody's.
    Fault("write EIO on another file", "write:error=EIO", "elsewhere", ""),
    # An interrupted write wrote nothing: it is the one that is tried again.
    Fault("write EINTR", "write:error=EINTR:when=2", "segment", ""),
]
SHORT = ("write ENOSPC", "short write", "fdatasync EIO at the fifth", "new segment ENOSPC", "checkpoint's rename EIO", "no fault at a rotation", "write EINTR")


class Scene:
    """A gate under load and what its host received."""

    def __init__(self, binary: str, settings: str = "", reader: str | None = None):
        self.binary, self.reader = binary, reader
        self.host = Host()
        self.gate = Gate(binary, self.host, settings=settings)
        self.lock = threading.Lock()
        self.seed = 0
        self.strace: subprocess.Popen | None = None
        self.log = self.gate.dir / "strace.log"

    def __enter__(self) -> "Scene":
        self.gate.start()
        return self

    def __exit__(self, *_) -> None:
        if self.strace is not None and self.strace.poll() is None:
            self.strace.kill()
            self.strace.wait()
        self.gate.remove()
        self.host.close()

    def attach(self, fault: Fault) -> None:
        """strace counts from here on: the start is through."""
        ledger = self.gate.ledger
        newest = segments(ledger)[-1]
        head = int(newest.stem)
        paths = {"segment": [newest], "next": [newest] + [ledger / f"{head + n:012}.jsonl" for n in range(1, 120)],
                 "checkpoint": [ledger / ".checkpoint.new", ledger / "checkpoint"], "elsewhere": [self.gate.dir / "seed-04.txt"]}[fault.on]
        command = ["strace", "-f", "-y", "-ttt", "-o", str(self.log), "-e", "trace=write,fdatasync,fsync,openat,rename,statx", "-p", str(self.gate.proc.pid)]
        for path in paths:
            command += ["-P", str(path)]
        if fault.inject:
            command += ["-e", f"inject={fault.inject}"]
        told = self.gate.dir / "strace.err"
        with open(told, "wb") as err:
            self.strace = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
        threads = len(os.listdir(f"/proc/{self.gate.proc.pid}/task"))
        traced = lambda: all(self._tracer(task) == self.strace.pid for task in os.listdir(f"/proc/{self.gate.proc.pid}/task"))
        if not until(lambda: self.strace.poll() is not None or traced(), 10) or self.strace.poll() is not None:
            raise Skip(f"strace cannot attach to {threads} threads: {told.read_text()[-300:].strip()}")

    def _tracer(self, task: str) -> int:
        try:
            status = Path(f"/proc/{self.gate.proc.pid}/task/{task}/status").read_text()
        except OSError:
            return self.strace.pid
        return int(re.search(r"TracerPid:\s*([0-9]+)", status)[1])

    def detach(self) -> list[str]:
        self.strace.send_signal(signal.SIGINT)
        self.strace.wait(20)
        return self.log.read_text().splitlines()

    def one(self, client=None):
        with self.lock:
            self.seed += 1
            payload = body(self.seed)
        own = client or self.gate.client()
        reply = own.call(card(), payload)
        if client is None:
            own.close()
        return sha(payload), reply

    def load(self, each: int) -> list:
        """So many calls by each of the callers, at once."""
        out: list = []

        def caller():
            client = self.gate.client()
            for _ in range(each):
                out.append(self.one(client))
            client.close()

        threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return out

    def seen(self) -> set[str]:
        with self.host.lock:
            return {sha(request.body) for request in self.host.received}

    def settled(self, answers: list) -> None:
        """What a client was told is what the host saw."""
        gone = {plan for plan, reply in answers if reply.status == 200}
        check(all(reply.status in (200, 503) for _, reply in answers), f"other answers: {[r for _, r in answers if r.status not in (200, 503)][:2]}")
        refused = {plan for plan, reply in answers if reply.status == 503}
        check(all(reply.reason == "ledger_unavailable" for _, reply in answers if reply.status == 503), "503 with another reason")
        check(gone <= self.seen(), "a forwarded call is not with the host")
        check(not refused & self.seen(), f"{len(refused & self.seen())} refused calls are with the host")

    def latched(self, why: str, error: str = "") -> None:
        """Latched it stays, for every kind of call, and the host hears of nothing."""
        before, accepts = len(self.host.received), self.host.accepts
        for _ in range(AFTER):
            reply = self.one()[1]
            check((reply.status, reply.reason) == (503, "ledger_unavailable"), f"after the fault: {reply}")
        client = self.gate.client()
        for value in (card(egress_class="machine-local"), None):
            reply = client.call(value, b"{}")
            check((reply.status, reply.reason) == (503, "ledger_unavailable"), f"a hold after the fault: {reply}")
        client.close()
        check((len(self.host.received), self.host.accepts) == (before, accepts), "the host heard of leafgate after the fault")
        ready = self.gate.get("/readyz")
        check(ready.status == 503 and why in ready.body.decode() and error in ready.body.decode(), f"/readyz: {ready}, expected {why!r} and {error!r}")
        check(self.gate.get("/healthz").status == 200, "/healthz")
        check("leafgate_ledger_ok 0" in self.gate.get("/metrics").body.decode(), "/metrics does not say that the ledger is latched")

    def serving(self) -> None:
        plan, reply = self.one()
        check(reply.status == 200 and plan in self.seen(), f"a call without a fault: {reply}")
        ready = self.gate.get("/readyz")
        check(ready.status == 200, f"/readyz without a fault: {ready}")

    def restart(self) -> list[dict]:
        """Ends it, starts it again on the same files, and asks every reader."""
        self.gate.stop()
        self.gate.start()
        self.serving()
        check(self.gate.stop() == 0, "the stop after a restart")
        found = all_whole(self.binary, self.gate.ledger, self.reader)
        decided = {record["plan_sha256"] for record in found if record["t"] == "decision" and record["verdict"] == "forward"}
        check(self.seen() <= decided, "the host has a body without a decision on disk")
        return found


def injected(binary: str, reader: str | None, fault: Fault):
    def run() -> str:
        if shutil.which("strace") is None:
            raise Skip("strace is not installed")
        with Scene(binary, fault.settings, reader) as scene:
            scene.load(2)
            scene.attach(fault)
            answers = scene.load(8)
            if "checkpoint_every" in fault.settings:
                time.sleep(1.3)
                answers += scene.load(1)
                until(lambda: "INJECTED" in scene.log.read_text(), 5)
            scene.settled(answers)
            refused = sum(reply.status == 503 for _, reply in answers)
            if not fault.latches:
                return not_latched(scene, fault)
            if fault.why:
                check(refused > 0, "no call met the fault")
                name = re.search(r"error=([A-Z]+)", fault.inject)
                scene.latched(fault.why, SAYS[name[1]] if name else "")
            else:
                check(refused == 0, f"{refused} calls were refused without a fault")
                scene.serving()
            log = scene.detach()
            later = after_the_fault(log) if fault.why else []
            syncs = sum(f" {name}(" in line for line in log for name in SYNCS)
            check(not later, f"after the fault it wrote or synced again: {later[:2]}")
            check(bool(fault.inject and fault.on != "elsewhere") == any("INJECTED" in line for line in log), "strace injected otherwise")
            found = scene.restart()
            unknown = sum(record["t"] == "outcome" and record["sent"] == "unknown" for record in found)
            return f"{len(answers)} calls, {refused} refused, {syncs} syncs, {len(later)} after the fault, {unknown} unknown after the restart"
    return run


def after_the_fault(log: list[str]) -> list[str]:
    """Writes and syncs of the ledger's files that began after the first fault."""
    at = next((n for n, line in enumerate(log) if "(INJECTED)" in line), len(log))
    lines = [line for line in log[at + 1:] if re.search(r" (write|fdatasync|fsync)\(", line)]
    return [line for line in lines if ".jsonl" in line]


def not_latched(scene: Scene, fault: Fault) -> str:
    """A checkpoint that cannot be written is said, and written when it is next due; the records are durable all the same."""
    told = scene.gate.told()
    check(fault.why in told, f"the log does not say that {fault.why}")
    check(any("INJECTED" in line for line in scene.log.read_text().splitlines()), "the fault was not met")
    scene.serving()
    time.sleep(1.2)
    scene.serving()
    scene.detach()
    check(until(lambda: int((scene.gate.ledger / "checkpoint").read_text().split("\n")[1]) >= len(records(scene.gate.ledger)) - 4, 4),
          "the checkpoint was not written when it was next due")
    scene.restart()
    return "said, and written when it was next due"


def at_start(binary: str, reader: str | None, inject: str, what: str):
    """The start's own first record: no listener, one line that says why, exit status 2; the next start without the fault mends it."""
    def run() -> str:
        if shutil.which("strace") is None:
            raise Skip("strace is not installed")
        host = Host()
        gate = Gate(binary, host)
        try:
            done = subprocess.run(["strace", "-f", "-o", str(gate.dir / "strace.log"), "-P", str(gate.ledger / "000000000000.jsonl"), "-e",
                                   f"inject={inject}", binary, "serve", "--policy", str(gate.policy)], cwd=gate.dir, env=gate.env, capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL, timeout=30)
            check("INJECTED" in (gate.dir / "strace.log").read_text(), "the fault was not met")
            said = [line for line in done.stderr.splitlines() if line.startswith("leafgate: ")]
            error = SAYS[re.search(r"error=([A-Z]+)", inject)[1]]
            check(done.returncode == 2 and len(said) == 1 and what in said[0] and error in said[0], f"status {done.returncode}: {done.stderr[-400:]}")
            gate.start()
            reply = gate.client().call(card(), body(1))
            check(reply.status == 200, f"after the restart: {reply}")
            gate.stop()
            all_whole(binary, gate.ledger, reader)
            return said[0].rpartition(": ")[2]
        finally:
            gate.remove()
            host.close()
    return run


def renamed(gate: Gate, segment: Path):
    segment.rename(segment.with_suffix(".away"))
    return lambda: segment.with_suffix(".away").rename(segment)


def truncated(gate: Gate, segment: Path):
    os.truncate(segment, segment.stat().st_size - 1)


def emptied(gate: Gate, segment: Path):
    os.truncate(segment, 0)


def deleted(gate: Gate, segment: Path):
    segment.unlink()


def replaced(gate: Gate, segment: Path):
    """The same bytes under another inode."""
    other = segment.with_suffix(".copy")
    shutil.copy(segment, other)
    other.rename(segment)


def linked(gate: Gate, segment: Path):
    os.link(segment, gate.dir / "second-name")
    return (gate.dir / "second-name").unlink


def appended(gate: Gate, segment: Path):
    before = segment.stat().st_size
    with open(segment, "ab") as file:
        file.write(b"x")
    # Taken back before the restart: what leafgate wrote after it goes with it.
    return lambda: os.truncate(segment, before)


def symlinked(gate: Gate, segment: Path):
    away = gate.dir / "away.jsonl"
    segment.rename(away)
    segment.symlink_to(away)

    def back():
        segment.unlink()
        away.rename(segment)
    return back


def folder_renamed(gate: Gate, segment: Path):
    gate.ledger.rename(gate.dir / "ledger-away")
    return lambda: (gate.dir / "ledger-away").rename(gate.ledger)


def folder_replaced(gate: Gate, segment: Path):
    gate.ledger.rename(gate.dir / "ledger-away")
    shutil.copytree(gate.dir / "ledger-away", gate.ledger)

    def back():
        shutil.rmtree(gate.ledger)
        (gate.dir / "ledger-away").rename(gate.ledger)
    return back


# What is done, what must be said of it, and how a start with the files as they are then ends: `whole` (it mends), `refused` (records are gone).
HANDS = [
    (renamed, "was renamed or deleted", "whole"), (truncated, "was truncated", "whole or refused"), (emptied, "was truncated", "refused"),
    (deleted, "was deleted", "refused"), (replaced, "was deleted, or has a second name", "whole"), (linked, "has a second name", "whole"),
    (appended, "was truncated, or written by another", "whole or refused"), (symlinked, "was replaced", "whole"), (folder_renamed, "was renamed or deleted", "whole"),
    (folder_replaced, "was replaced", "whole"),
]


def by_hand(binary: str, reader: str | None, hand, why: str, then: str):
    def run() -> str:
        with Scene(binary, 'checkpoint_every = "1s"', reader) as scene:
            scene.settled(scene.load(2))
            scene.serving()
            gate = scene.gate
            covered = lambda: int((gate.ledger / "checkpoint").read_text().split("\n")[1])
            # Quiet, and every record under a checkpoint: what goes now is missed.
            check(until(lambda: covered() == len(records(gate.ledger)), 5), "the checkpoint does not catch up")
            seen = scene.seen()
            back = hand(gate, segments(gate.ledger)[-1])
            answers = scene.load(2)
            check(all(reply.status == 503 for _, reply in answers), f"{sum(r.status == 200 for _, r in answers)} calls left after the file was {hand.__name__}")
            scene.settled(answers)
            check(scene.seen() == seen, "the host heard of leafgate")
            scene.latched(why)
            gate.stop()
            if back is not None:
                back()
            if then == "whole":
                scene.restart()
                return "latched; mended by the restart"
            gate.spawn()
            ended = until(lambda: gate.proc.poll() is not None or said(gate), 10)
            check(ended, "the restart neither serves nor ends")
            if gate.proc.poll() is None:
                check(then != "refused", "a start takes a ledger whose records are gone")
                scene.restart()
                return "latched; mended by the restart"
            check(gate.proc.returncode == 2 and "leafgate: " in gate.told(), f"the restart ended with {gate.proc.returncode}: {gate.told()[-300:]}")
            status, found = first(binary, gate.ledger)
            check(status == 1 or not segments(gate.ledger), f"verify says of it: {found}")
            return f"latched; the restart is refused: {gate.told().splitlines()[-1].partition(': ')[2].rpartition('/')[2][:110]}"
    return run


def said(gate: Gate) -> bool:
    try:
        return gate.listens()
    except Failed:  # it ended: the caller looks
        return True


def untouched(binary: str, reader: str | None):
    """The twin of the hands: the same calls, and nobody touches the files; reading them is no fault."""
    def run() -> str:
        with Scene(binary, 'checkpoint_every = "1s"', reader) as scene:
            scene.settled(scene.load(2))
            shutil.copytree(scene.gate.ledger, scene.gate.dir / "copy")
            status, found = first(binary, scene.gate.ledger)
            check(status == 0 and found["facts"]["running"], f"verify beside the writer: {found}")
            answers = scene.load(2)
            check(all(reply.status == 200 for _, reply in answers), "refused without a fault")
            scene.serving()
            scene.restart()
            return f"{len(answers)} calls"
    return run


def cases(binary: str, reader: str | None, short: bool):
    out = [(f"fault: {fault.name}", injected(binary, reader, fault)) for fault in FAULTS + TWINS if not short or fault.name in SHORT]
    out += [("fault: the start's write ENOSPC", at_start(binary, reader, "write:error=ENOSPC:when=1", "cannot write the first record")),
            ("fault: the start's fdatasync EIO", at_start(binary, reader, "fdatasync:error=EIO:when=1", "cannot write the first record"))][short:]
    out += [(f"hand: {hand.__name__.replace('_', ' ')}", by_hand(binary, reader, hand, why, then)) for hand, why, then in HANDS[::2 if short else 1]]
    return out + [("hand: none", untouched(binary, reader))]
