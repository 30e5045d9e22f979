"""The five commands of docs/fixtures.md, taken from its text and run as a first user would: from an installed eval to a released run. Called by `run`.

Nothing is changed but the ports: the model server is a stand-in on loopback that keeps every body, and leafgate listens where nobody else does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

DOC = Path(__file__).resolve().parent.parent.parent / "docs/fixtures.md"
SECTION = "## From an eval to a released run"


def story(text: str) -> tuple[dict[str, str], list[str]]:
    """The files and the commands of the section."""
    section = text.split(SECTION + "\n", 1)[1].split("\n### ", 1)[0]
    files = dict(re.findall(r"^`([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)^```$", section, re.M | re.S))
    block = re.search(r"^The five commands:\n\n```sh\n(.*?)^```$", section, re.M | re.S)
    return files, block[1].splitlines() if block else []


def serve(command: str, folder: Path, env: dict[str, str], admin: int) -> subprocess.Popen:
    """Starts the proxy and waits until it is ready."""
    log = open(folder / "serve.log", "wb")  # noqa: SIM115 - the process has it
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=5):
                break
        except OSError:
            time.sleep(0.1)
    return process


def run(binary: str, lm_eval: str, host, free_port, clean, check) -> None:
    """Runs the story; `check(good, what)` counts."""
    files, commands = story(DOC.read_text())
    check(len(files) == 4 and len(commands) == 5, f"docs/fixtures.md: {len(files)} files, {len(commands)} commands")
    if len(commands) != 5:
        return
    proxy, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="leafgate-five-") as scratch:
        folder = Path(scratch) / "eval"
        (folder / "cards").mkdir(parents=True)
        programs = Path(scratch) / "bin"
        programs.mkdir()
        (programs / "leafgate").symlink_to(binary)
        env = {**clean(Path(scratch)), "PATH": f"{programs}:{Path(lm_eval).parent}:{os.environ['PATH']}"}
        # A first user has no key in the environment.
        env.pop("OPENAI_API_KEY")
        for name, text in files.items():
            text = text.replace("127.0.0.1:11434", f"127.0.0.1:{host.server_address[1]}")
            if name == "policy.toml":
                text = text.replace("version = 1\n", f'version = 1\n[listen]\nproxy = "127.0.0.1:{proxy}"\nadmin = "127.0.0.1:{admin}"\n', 1)
            (folder / name).write_text(text)
        before, gate = len(host.bodies), None
        try:
            for number, command in enumerate(commands, start=1):
                line = command.replace("127.0.0.1:8484", f"127.0.0.1:{proxy}")
                log = ""
                if line.endswith(" &"):
                    gate = serve(line.removesuffix(" &"), folder, env, admin)
                    good = gate.poll() is None
                else:
                    done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=600)
                    good, log = done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
                check(good, f"command {number} of 5: {' '.join(command.split()[:3])} …")
                if not good:
                    print(log[-2500:])
                    return
            bodies = [json.loads(body) for body in host.bodies[before:]]
            questions = [json.loads(line)["question"] for line in files["capitals.jsonl"].splitlines()]
            there = sum(any(f"Question: {question}\n" in body["messages"][-1]["content"] for body in bodies) for question in questions)
            check(there == len(questions) == len(bodies), f"{there} of {len(questions)} items released, {len(bodies)} bodies at the host")
        finally:
            if gate:
                gate.terminate()
                gate.wait(60)
