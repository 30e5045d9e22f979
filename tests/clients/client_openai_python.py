"""openai-python, the current one and 1.109: two environments, one document."""

import sys

from harness import ANSWER, DOC_CARD, Kit, main, must
from sdk import for_a_run, split, six_cases

NAMES = {"openai-python": "openai-python", "openai-python-1": "openai-python 1.109"}
OWN = """\
from openai import OpenAI

prompt = open("seed-04.txt").read()
print(OpenAI().chat.completions.create(model="m-small", messages=[{"role": "user", "content": prompt}]).choices[0].message.content)
"""


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace("    extra_headers=", "    stream=True,\n    extra_headers=")
    return text.replace("print(answer.choices[0].message.content)", 'print("|".join(c.choices[0].delta.content or "" for c in answer))')


def test(kit: Kit) -> None:
    kit.open()
    kit.warm("python", "openai")
    client = NAMES[kit.name]
    call = lambda **put: kit.python(kit.block("openai-python", **put))
    stream = lambda **put: kit.python(streamed(kit.block("openai-python", **put)))
    six_cases(kit, client, call, stream)
    for_a_run(kit, "openai-python-run", "my_eval.py", OWN)
    if kit.name == "openai-python":
        proxy_variables(kit)
    custom_headers(kit, works=kit.name == "openai-python")
    without_splits(kit)


def without_splits(kit: Kit) -> None:
    done, seen = kit.seen(lambda: kit.python(kit.block("openai-python-split")))
    must(done.status == 0 and ANSWER in done.out, done.text[-1500:])
    done, seen = kit.seen(lambda: kit.python(kit.block("openai-python-split", card=f"{DOC_CARD}-split")))
    must(done.status == 0 and done.out == "no score\n", done.text[-1500:])
    split(kit, seen)


def proxy_variables(kit: Kit) -> None:
    """A proxy variable takes the call past leafgate; the line of the document brings it back."""
    proxy = f"http://127.0.0.1:{kit.host.elsewhere.port}"
    run = kit.block("openai-python-run")
    done, seen = kit.seen(lambda: kit.shell(run, HTTP_PROXY=proxy))
    must(done.status != 0 and seen.elsewhere > 0 and not seen.decisions, f"{seen}\n{done.text[-1500:]}")
    done, seen = kit.seen(lambda: kit.shell(kit.block("no-proxy") + run, HTTP_PROXY=proxy))
    must(done.status == 0 and seen.elsewhere == 0, done.text[-1500:])
    seen.forwarded("release", 1)


def custom_headers(kit: Kit, works: bool) -> None:
    """OPENAI_CUSTOM_HEADERS is read by version 3, and not by 1.109."""
    run = kit.block("openai-python-run").replace(f"/card/{DOC_CARD}", "")
    done, seen = kit.seen(lambda: kit.shell(run, OPENAI_CUSTOM_HEADERS=f"leafgate-card: @{DOC_CARD}"))
    if works:
        must(done.status == 0, done.text[-1500:])
        seen.forwarded("release", 1)
    else:
        seen.nothing_left("card_missing", 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
