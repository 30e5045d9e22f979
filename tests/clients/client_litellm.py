"""litellm, its OpenAI provider."""

import sys

from harness import Kit, main
from sdk import six_cases


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace("    extra_headers=", "    stream=True,\n    extra_headers=")
    return text.replace("print(answer.choices[0].message.content)", 'print("|".join(c.choices[0].delta.content or "" for c in answer))')


def test(kit: Kit) -> None:
    kit.open()
    six_cases(
        kit,
        "litellm",
        lambda **put: kit.python(kit.block("litellm", **put)),
        lambda **put: kit.python(streamed(kit.block("litellm", **put))),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
