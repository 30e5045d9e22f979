"""The names that the client tests share."""

from __future__ import annotations

import json
import socket
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


def must(holds: bool, why: str) -> None:
    """An assertion as an expression."""
    if not holds:
        raise AssertionError(why)
