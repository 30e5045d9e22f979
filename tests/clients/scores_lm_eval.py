"""lm_eval over 50 items with a real model server: the same score with and without leafgate, to the digit."""

import json
import sys

from client_lm_eval import WARM
from harness import DOC_CARD, Kit, main
from scores import both

METRIC = "metric_list: [{ metric: exact_match, aggregation: mean, higher_is_better: true }]"
CHRF = "metric_list: [{ metric: chrf, aggregation: chrf, higher_is_better: true }]"


def test(kit: Kit) -> None:
    def run(name: str, base_url: str):
        task = kit.file("leaf.yaml")
        text = task.read_text()
        assert METRIC in text, text
        task.write_text(text.replace(METRIC, CHRF).replace("max_gen_toks: 32", "max_gen_toks: 12"))
        command = kit.block("lm-eval", model="tiny")
        if name == "direct":
            command = command.replace(f"http://127.0.0.1:{kit.gate.port}/card/{DOC_CARD}/v1", base_url)
        return kit.shell(command.rstrip() + f" --log_samples --output_path {name}\n")

    def result(name: str):
        (scores,) = (kit.folder / name).glob("**/results_*.json")
        (samples,) = (kit.folder / name).glob("**/samples_*.jsonl")
        answers = {sample["doc_id"]: json.dumps(sample["resps"]) for sample in map(json.loads, samples.read_text().splitlines())}
        return json.loads(scores.read_text())["results"]["leaf"]["chrf,none"], answers

    kit.warm(*WARM)
    both(kit, run, result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
