"""inspect_ai over 50 items with a real model server: the same score with and without leafgate, to the digit."""

import json
import sys

from client_inspect import WARM
from harness import Kit, main
from scores import both

RUN = " --display plain --log-format json --temperature 0 --max-tokens 12 --max-connections 1 --log-dir "


def test(kit: Kit) -> None:
    def run(name: str, base_url: str):
        task = kit.file("leaf.py").read_text()
        # The token overlap with the target, in place of a match.
        task = task.replace("accuracy()", "mean()").replace("accuracy, match,", "f1, mean,").replace("inner = match()", "inner = f1()")
        (kit.folder / "leaf.py").write_text(task)
        items = [json.loads(line) for line in (kit.folder / "set.jsonl").read_text().splitlines()]
        (kit.folder / "samples.jsonl").write_text("".join(json.dumps({**item, "card": "seed-04"}) + "\n" for item in items))
        command = kit.block("inspect", model="tiny").replace(kit.gate.base_url, base_url)
        return kit.shell(command.rstrip() + RUN + name + "\n")

    def result(name: str):
        (file,) = (kit.folder / name).glob("*.json")
        log = json.loads(file.read_text())
        answers = {sample["id"]: sample["output"]["completion"] for sample in log["samples"]}
        return log["results"]["scores"][0]["metrics"]["mean"]["value"], answers

    kit.warm(*WARM)
    both(kit, run, result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
