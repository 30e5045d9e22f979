"""One leafgate over a scratch folder, and its ledger."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
import urllib.request
from pathlib import Path

from common import DOC_CARD, DOC_MODEL, LABEL, compact, free_port, must

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
