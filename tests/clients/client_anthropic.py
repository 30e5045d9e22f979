"""anthropic-python, to a host whose split goes to /messages, so that its answer has the shape this client reads."""

import sys

from harness import Kit, main, must
from sdk import for_a_run, six_cases

OWN = """\
from anthropic import Anthropic

prompt = open("seed-04.txt").read()
print(Anthropic().messages.create(model="m-small", max_tokens=64, messages=[{"role": "user", "content": prompt}]).content[0].text)
"""


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace("    extra_headers=", "    stream=True,\n    extra_headers=")
    return text.replace("print(answer.content[0].text)", 'print("|".join(e.delta.text for e in answer if e.type == "content_block_delta"))')


def test(kit: Kit) -> None:
    kit.open(split_route="/messages")
    kit.warm("python", "anthropic")
    must(kit.block("anthropic-split") in (kit.folder / "policy.toml").read_text(), "the policy has another split than the document")
    six_cases(
        kit,
        "anthropic-python",
        lambda **put: kit.python(kit.block("anthropic", **put)),
        lambda **put: kit.python(streamed(kit.block("anthropic", **put))),
    )
    for_a_run(kit, "anthropic-run", "my_eval.py", OWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
