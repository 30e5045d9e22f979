"""promptfoo with a card for each test: one run holds a released test, a held one and a split one."""

import json
import re
import sys

from harness import ANSWER, HELD_SAYS, Kit, main, must
from sdk import redirected, split

CLIENT = "promptfoo"
ERROR = 2  # failureReason of a test that could not be run, as against one whose assertion failed


def test(kit: Kit) -> None:
    kit.open()
    kit.row(CLIENT, streamed="never streams")

    done, seen, results = run(kit)
    must(done.status == 100 and len(results) == 3, f"exit status {done.status}: {done.text[-2500:]}")
    leaves = sorted((d["leaf"], d["verdict"]) for d in seen.decisions)
    must(leaves == [("hold", "refuse"), ("release", "forward"), ("split", "forward")], f"decisions: {leaves}")
    must(len(seen.host) == 2, f"{len(seen.host)} at the host")
    good = [r for r in results if r["success"]]
    must(len(good) == 2 and all(r["response"]["output"] == ANSWER for r in good), json.dumps(results)[:2000])
    kit.row(CLIENT, released="1 call, scored")
    held = next(r for r in results if not r["success"])
    must(held["failureReason"] == ERROR and HELD_SAYS in held["error"] and HELD_SAYS in re.sub(r"[\s│]+", " ", done.text), f"{held}\n{done.text[-2000:]}")
    kit.row(CLIENT, held="1 call, the test is an error, reason shown, not scored")

    # The tests that are marked as remote are those whose answers count.
    done, seen, results = run(kit, block="promptfoo-remote")
    must(done.status == 0 and len(results) == 1, done.text[-2000:])
    seen.forwarded("release", 1)

    done, seen, results = run(kit, more="--filter-metadata score=local")
    must(done.status == 0 and len(results) == 1 and results[0]["success"], done.text[-2000:])
    split(kit, seen)
    kit.row(CLIENT, split="1 call, four values at the host, its answer **scored** where it is asserted")

    done, seen, results = run(kit, more="--filter-first-n 1", model="m-redirect")
    redirected(seen, 1)
    must(done.status == 100 and results[0]["failureReason"] == ERROR and "redirect" in results[0]["error"], f"{results}")
    kit.row(CLIENT, redirect="1 call, the test is an error, reason shown, not scored")

    done, seen, results = run(kit, more="--filter-first-n 1", model="m-fails")
    seen.forwarded("release", 1)
    must(done.status == 100 and results[0]["failureReason"] == ERROR and "the host is out of order" in results[0]["error"], f"{results}")
    kit.row(CLIENT, failing="1 call, recorded, the test is an error")

    plain = {"prompts": ["{{question}}"], "providers": ["openai:chat:m-small"], "tests": [{"vars": {"question": "file://seed-04.txt"}}]}
    (kit.folder / "plain.yaml").write_text(json.dumps(plain))
    done, seen = kit.seen(lambda: kit.shell(kit.block("promptfoo-run")))
    must(done.status == 0, done.text[-2000:])
    seen.forwarded("release", 1)


def run(kit: Kit, block: str = "promptfoo", more: str = "", **put):
    kit.file("promptfooconfig.yaml", **put)
    (kit.folder / "out.json").unlink(missing_ok=True)
    done, seen = kit.seen(lambda: kit.shell(kit.block(block).rstrip() + f" -o out.json {more}\n"))
    out = kit.folder / "out.json"
    must(out.exists(), done.text[-2500:])
    return done, seen, json.loads(out.read_text())["results"]["results"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
