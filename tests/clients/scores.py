"""What the two score tests share: 50 items, a real model server, and a comparison to the digit."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import PLACE, Kit, ModelServer, compact, must

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "datasets"))
import sets  # noqa: E402

ITEMS = 50
GLUE = ["Question: ", "\nAnswer:"]
# Targets in the words of the tiny model's vocabulary, so that its answers overlap with them and the score is no round number.
WORDS = "red green blue yes no one two three the leaf gate is public local".split()


def items() -> list[dict]:
    questions = list({item["question"] for item in sets.qa() if len(item["question"]) < 200})
    questions.sort()
    return [{"id": n, "question": q, "answer": f"{WORDS[n % 14]} {WORDS[n * 5 % 14]} {WORDS[n * 3 % 11]}"} for n, q in enumerate(questions[:ITEMS])]


def both(kit: Kit, run, result) -> None:
    """Runs it straight to the model server and through leafgate; `result` gives the score and the answers of the last run."""
    lines = "".join(compact(item) + "\n" for item in items())
    server = ModelServer(kit.folder, PLACE / "env/model-server/bin/python")
    try:
        stops = compact({"until": ["\n\n"]}) + "\n"
        kit.open({"set.jsonl": lines, "stops.jsonl": stops}, host=server.base_url, form="jsonl", glue=GLUE, models=("tiny",))
        start = server.tokens()
        done = run("direct", server.base_url)
        must(done.status == 0, done.text[-2500:])
        straight, middle = result("direct"), server.tokens()
        done = run("gate", kit.gate.base_url)
        must(done.status == 0, done.text[-2500:])
        gated, end = result("gate"), server.tokens()
        decisions, outcomes = kit.gate.records("decision"), [kit.gate.outcome(d["call"]) for d in kit.gate.records("decision")]
        must(len(decisions) == ITEMS and {(d["leaf"], d["verdict"], d["bind"]["mode"]) for d in decisions} == {("release", "forward", "cover")}, f"{decisions[:2]}")
        must({(o["status"], o["sent"]) for o in outcomes} == {(200, "all")}, f"{outcomes[:2]}")
        must(len(straight[1]) == len(gated[1]) == ITEMS and len(set(straight[1].values())) > 5, f"{len(set(straight[1].values()))} different answers")
        differ = [key for key, answer in straight[1].items() if gated[1].get(key) != answer]
        must(not differ, f"{len(differ)} answers differ")
        must(straight[0] == gated[0] and 0 < straight[0], f"score {straight[0]!r} without leafgate, {gated[0]!r} with it")
        # Not the same count: what the server has seen before it takes from its cache.
        must(start < middle < end, f"tokens at the host: {start}, {middle}, {end}")
        print(f"ok    {kit.name}: score {straight[0]!r} with and without leafgate, {ITEMS} equal answers")
    finally:
        server.stop()
