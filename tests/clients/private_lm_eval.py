"""lm_eval over 200 items of which 20 are private: one card names the data set, and cover decides item by item.

The pre-flight comes first, as docs/clients.md writes it: `fixture learn` finds the template over the public items and records the bodies of all, `fixture check` says
which would be refused and keeps the rest, and `--samples` runs the rest. A run over all 200 then shows that the same 20 are refused, and the 180 released, in the run itself.
"""

import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "datasets"))
import sets  # noqa: E402
from client_lm_eval import WARM, scored  # noqa: E402
from harness import Kit, compact, main, must  # noqa: E402

PUBLIC, PRIVATE = 180, 20
# Long enough for every other item to be sent before the first refused one is given up.
PATIENT = "num_concurrent=4,max_retries=6,model="


def private(n: int) -> dict:
    r = random.Random(n)
    who = r.choice(["Maren Oduya", "Ulrich Vandersteen", "Ysolde Kwarteng", "Wenceslas Ibe"])
    return {"question": f"Canary {n}: why was {who} refunded {r.randint(1000, 9999)} euros on ward {r.randint(10, 99)}?", "answer": "because"}


def test(kit: Kit) -> None:
    public = list({item["question"]: {"question": item["question"], "answer": item["answer"]} for item in sets.qa()}.values())[:PUBLIC]
    lines = lambda items: "".join(compact(item) + "\n" for item in items)
    (kit.folder / "public.jsonl").write_text(lines(public))
    done = kit.shell(kit.block("lm-eval-fixture"))
    must(done.status == 0, done.text)
    kit.open({name: (kit.folder / name).read_text() for name in ("public.jsonl", "stops.jsonl")}, registered=True)
    items = public + [private(n) for n in range(PRIVATE)]
    random.Random(20).shuffle(items)
    (kit.folder / "set.jsonl").write_text(lines(items))
    kit.file("leaf.yaml")
    kit.file("keep.py")
    kit.warm(*WARM)

    # Before the run. Nothing is sent to any host, and nothing is recorded but the bodies.
    done, seen = kit.seen(lambda: kit.shell(kit.block("lm-eval-learn")))
    must(done.status == 0 and not seen.decisions and not seen.host, f"exit status {done.status}\n{done.text[-3000:]}")
    glue = json.loads((kit.folder / "seed-04.glue.json").read_text())
    must(sorted(glue) == ["\nAnswer:", "Question: "], f"glue: {glue}")
    done, seen = kit.seen(lambda: kit.shell(kit.block("lm-eval-record")))
    must(done.status == 1 and not seen.decisions and not seen.host, f"exit status {done.status}\n{done.text[-3000:]}")
    must(json.loads((kit.folder / "seed-04.glue.json").read_text()) == glue, "glue was written without --accept")
    done = kit.shell(kit.block("lm-eval-check"))
    must(done.status == 1 and "180 of 200 bodies are bound" in done.out, done.text[-2000:])
    refused = [int(n) for n in re.findall(r"^line (\d+): not bound", done.out, re.M)]
    bodies = (kit.folder / "bodies.jsonl").read_text().splitlines()
    passing = (kit.folder / "passing.jsonl").read_text().splitlines()
    must(len(bodies) == PUBLIC + PRIVATE and len(passing) == PUBLIC, f"{len(bodies)} recorded, {len(passing)} pass")
    must(all("Canary" in bodies[n - 1] for n in refused) and len(refused) == PRIVATE, f"refused: {refused}")
    must(set(passing) == {body for body in bodies if "Canary" not in body}, "other bodies pass than the public ones")

    # The run over what passes.
    kit.until_reload()
    done, seen = kit.seen(lambda: kit.shell(kit.block("lm-eval-kept")))
    must(done.status == 0 and scored(done) != "", done.text[-2500:])
    seen.forwarded("release", PUBLIC)

    # The run over everything: it ends without a score, and each item has its decision.
    text = kit.block("lm-eval").replace("model=", PATIENT)
    done, seen = kit.seen(lambda: kit.shell(text))
    must(done.status == 1 and scored(done) == "", done.text[-2500:])
    let_go = {d["body_mac"] for d in seen.decisions if d["verdict"] == "forward"}
    refusals = [d for d in seen.decisions if d["verdict"] == "refuse"]
    must({d["reason"] for d in refusals} == {"body_unbound"}, f"{refusals[:2]}")
    must((len(let_go), len({d["body_mac"] for d in refusals})) == (PUBLIC, PRIVATE), f"{len(let_go)} released, {len({d['body_mac'] for d in refusals})} refused")
    must(len({one.body for one in seen.host}) == PUBLIC and not any(b"Canary" in one.body for one in kit.host.arrived), "a private item is at the host")
    print(f"ok    {PUBLIC} released, {PRIVATE} refused, each recorded; {len(refusals)} refusals with lm_eval's retries")

    # One request at a time: lm_eval ends at its first refusal.
    done, seen = kit.seen(lambda: kit.shell(kit.block("lm-eval")))
    must(done.status == 1 and len([d for d in seen.decisions if d["verdict"] == "refuse"]) == 3, done.text[-1500:])
    must(len({d["body_mac"] for d in seen.decisions if d["verdict"] == "refuse"}) == 1, "lm_eval went on after a refusal")


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
