"""anthropic-python, to a host whose split goes to /messages, so that its answer has the shape this client reads."""

import sys

from harness import Kit, main
from sdk import six_cases


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace("    extra_headers=", "    stream=True,\n    extra_headers=")
    return text.replace("print(answer.content[0].text)", 'print("|".join(e.delta.text for e in answer if e.type == "content_block_delta"))')


def test(kit: Kit) -> None:
    kit.open(split_route="/messages")
    six_cases(
        kit,
        "anthropic-python",
        lambda **put: kit.python(kit.block("anthropic", **put)),
        lambda **put: kit.python(streamed(kit.block("anthropic", **put))),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
