"""lm-evaluation-harness over one item, with both of its HTTP stacks: requests, and aiohttp where num_concurrent is above 1."""

import sys

from harness import ANSWER, DOC_CARD, FIXTURE, HELD_SAYS, Kit, compact, main, must
from sdk import calls, redirected, split

RETRIES = 3
WARM = ("lm_eval", "lm_eval.__main__,lm_eval.evaluator,lm_eval.models.openai_completions", "cli_evaluate")


def test(kit: Kit) -> None:
    # The stop words of the task leave too: a second file of the fixture holds them.
    item, stops = compact({"question": FIXTURE, "answer": ANSWER}), compact({"until": ["\n\n"]})
    kit.open({"set.jsonl": item + "\n", "stops.jsonl": stops + "\n"}, form="jsonl", glue=["Question: ", "\nAnswer:"])
    kit.file("leaf.yaml")
    kit.warm(*WARM)
    stack(kit, "lm_eval (requests)", "lm-eval")
    stack(kit, "lm_eval (aiohttp)", "lm-eval-header")
    done, seen = kit.seen(lambda: kit.shell(kit.block("lm-eval-split")))
    must(done.status == 0 and scored(done) == "" and list((kit.folder / "split").glob("**/samples_*.jsonl")), done.text[-2000:])
    split(kit, seen)
    # What tokenizer_backend=remote asks stands outside /v1: it never becomes a call.
    for path in ("tokenizer_info", "tokenize"):
        done, seen = kit.seen(lambda path=path: kit.shell(f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{kit.gate.port}/{path}"))
        must(done.out == "404" and not seen.decisions and not seen.host, f"{path}: {done.out}")


def stack(kit: Kit, client: str, block: str) -> None:
    def run(**put):
        return kit.shell(kit.block(block, **put))

    kit.row(client, streamed="never streams")
    done, seen = kit.seen(run)
    must(done.status == 0 and scored(done) == "1", done.text[-2000:])
    seen.forwarded("release", 1)
    kit.row(client, released="1 call, scored")

    done, seen = kit.seen(lambda: run(card=f"{DOC_CARD}-split"))
    must(done.status == 0 and scored(done) == "1", done.text[-2000:])
    split(kit, seen)
    kit.row(client, split="1 call, four values at the host, its answer **scored**")

    done, seen = kit.seen(lambda: run(card=f"{DOC_CARD}-held"))
    seen.nothing_left("residue_present", RETRIES)
    kit.row(client, held=f"{calls(RETRIES)}, each recorded, {stops(done, HELD_SAYS)}")

    done, seen = kit.seen(lambda: run(model="m-redirect"))
    redirected(seen, RETRIES)
    kit.row(client, redirect=f"{calls(RETRIES)}, each recorded, {stops(done, 'redirect')}")

    done, seen = kit.seen(lambda: run(model="m-fails"))
    seen.forwarded("release", RETRIES)
    said = stops(done, "the host is out of order").replace("reason", "the host's words")
    kit.row(client, failing=f"{calls(RETRIES)}, each recorded, {said}")


def scored(done) -> str:
    """The score in the table that lm_eval prints; nothing where there is none."""
    for line in done.out.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 7 and "exact_match" in cells:
            return cells[cells.index("exact_match") + 2]
    return ""


def stops(done, said: str) -> str:
    must(done.status == 1 and said in done.text and not scored(done), f"exit status {done.status}\n{done.text[-2500:]}")
    return "the run stops, reason shown, nothing scored"


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
