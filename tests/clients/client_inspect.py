"""inspect_ai with a card for each sample: one run holds a released sample, a split one and a held one. Both of its OpenAI-shaped providers."""

import hashlib
import json
import sys

from harness import ANSWER, DOC_CARD, FIXTURE, HELD_SAYS, Kit, compact, main, must
from sdk import redirected, split

WARM = ("inspect", "inspect_ai._cli.main,inspect_ai.model._providers.openai_compatible", "main")
PROVIDERS = {"inspect_ai (openai-api/)": "inspect", "inspect_ai (openai/)": "inspect-openai"}


def test(kit: Kit) -> None:
    kit.open()
    kit.file("leaf.py")
    kit.warm(*WARM)
    for client, block in PROVIDERS.items():
        provider(kit, client, block)
    for_a_run(kit)
    probe(kit)


def provider(kit: Kit, client: str, block: str) -> None:
    def run(*cards: str, model: str = "m-small", more: str = ""):
        samples = [compact({"id": card, "question": FIXTURE, "answer": ANSWER, "card": card}) for card in cards]
        (kit.folder / "samples.jsonl").write_text("\n".join(samples) + "\n")
        return kit.shell(kit.block(block, model=model).rstrip() + f" --display plain --log-format json --log-dir logs {more}\n")

    held, split_card = f"{DOC_CARD}-held", f"{DOC_CARD}-split"
    done, seen = kit.seen(lambda: run(DOC_CARD, split_card, held))
    must(done.status == 0, done.text[-2500:])
    released = [d for d in seen.decisions if d["leaf"] == "release"]
    holds = [d["reason"] for d in seen.decisions if d["leaf"] == "hold"]
    must(len(seen.decisions) == 3 and len(released) == 1 and holds == ["residue_present"], f"decisions: {seen.decisions}")
    must(len(seen.host) == 2, f"{len(seen.host)} at the host")
    seen.decisions = [d for d in seen.decisions if d["leaf"] == "split"]
    ids = {d["call"] for d in seen.decisions}
    seen.outcomes = [o for o in seen.outcomes if o["call"] in ids]
    sent = {o["sent_sha256"] for o in seen.outcomes}
    seen.host = [one for one in seen.host if hashlib.sha256(one.body).hexdigest() in sent]
    split(kit, seen)
    samples = log(kit)
    must(samples[DOC_CARD]["scores"]["remote_match"]["value"] in ("C", 1), f"{samples[DOC_CARD].get('scores')}")
    kit.row(client, released="1 call, scored")
    # The scorer of the document gives no score for a split; a held sample is an error, not a wrong answer.
    must(not samples[split_card].get("scores"), f"{samples[split_card].get('scores')}")
    kit.row(client, split="1 call, four values at the host, its answer left out of the score")
    must(HELD_SAYS in samples[held]["error"]["message"] and not samples[held].get("scores"), f"{samples[held]}")
    must(HELD_SAYS in done.text, done.text[-2500:])
    must(accuracy(kit) == 1.0, f"accuracy {accuracy(kit)}")
    kit.row(client, held="1 call, the sample is an error, reason shown, not scored")

    if block == "inspect":
        done, seen = kit.seen(lambda: run(DOC_CARD, more="-M stream=true"))
        must(done.status == 0 and log(kit)[DOC_CARD]["output"]["completion"].strip() == ANSWER, done.text[-2500:])
        seen.forwarded("release", 1)
        must(json.loads(seen.host[0].body).get("stream") is True, "no stream was asked for")
        kit.row(client, streamed="1 call, scored (`-M stream=true`)")
    else:
        kit.row(client, streamed="never streams")

    done, seen = kit.seen(lambda: run(DOC_CARD, model="m-redirect"))
    redirected(seen, 1)
    must("redirect" in log(kit)[DOC_CARD]["error"]["message"] and "redirect" in done.text, done.text[-2500:])
    kit.row(client, redirect="1 call, the sample is an error, reason shown, not scored")

    done, seen = kit.seen(lambda: run(DOC_CARD, model="m-fails", more="--max-retries 1"))
    must("InternalServerError" in log(kit)[DOC_CARD]["error"]["message"], done.text[-2500:])
    # The SDK's three, and three again for the retry.
    seen.forwarded("release", 6)
    kit.row(client, failing="again without end, each recorded; an error with `--max-retries`")


PLAIN = """\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match

@task
def plain():
    return Task(dataset=[Sample(id=1, input=open("seed-04.txt").read(), target="ultramarine")], scorer=match())
"""


def for_a_run(kit: Kit) -> None:
    (kit.folder / "plain.py").write_text(PLAIN)
    done, seen = kit.seen(lambda: kit.shell(kit.block("inspect-run").rstrip() + " --display plain --log-format json --log-dir logs\n"))
    must(done.status == 0 and accuracy(kit) == 1.0, done.text[-2500:])
    seen.forwarded("release", 1)


def log(kit: Kit) -> dict[str, dict]:
    """The samples of the last run's log, by id."""
    return {str(sample["id"]): sample for sample in whole_log(kit)["samples"]}


def accuracy(kit: Kit) -> float:
    return whole_log(kit)["results"]["scores"][0]["metrics"]["accuracy"]["value"]


def whole_log(kit: Kit) -> dict:
    newest = max((kit.folder / "logs").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    return json.loads(newest.read_text())


def probe(kit: Kit) -> None:
    """Without responses_api=false the openai/ provider first asks /responses once for the run, without the sample's card: it is held, and the run goes on."""
    sample = compact({"id": DOC_CARD, "question": FIXTURE, "answer": ANSWER, "card": DOC_CARD})
    (kit.folder / "samples.jsonl").write_text(sample + "\n")
    text = kit.block("inspect-openai").replace(" -M responses_api=false", "")
    done, seen = kit.seen(lambda: kit.shell(text.rstrip() + " --display plain --log-format json --log-dir logs\n"))
    said = [(d["verdict"], d["reason"]) for d in seen.decisions]
    must(said == [("refuse", "card_missing"), ("forward", "public_fixture")], f"decisions: {said}\n{done.text[-2000:]}")
    must([one.path for one in seen.host] == ["/v1/responses"] and accuracy(kit) == 1.0, f"at the host: {seen.host}")



if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
