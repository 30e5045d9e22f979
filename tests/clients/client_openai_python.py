"""openai-python, the current one and 1.109: two environments, one document."""

import sys

from harness import Kit, main
from sdk import six_cases

NAMES = {"openai-python": "openai-python", "openai-python-1": "openai-python 1.109"}
KEEP_ON = ("import httpx2", "import httpx")


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace("    extra_headers=", "    stream=True,\n    extra_headers=")
    return text.replace("print(answer.choices[0].message.content)", 'print("|".join(c.choices[0].delta.content or "" for c in answer))')


def test(kit: Kit) -> None:
    kit.open()
    client = NAMES[kit.name]
    call = lambda **put: kit.python(kit.block("openai-python", **put))
    stream = lambda **put: kit.python(streamed(kit.block("openai-python", **put)))
    six_cases(kit, client, call, stream)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
