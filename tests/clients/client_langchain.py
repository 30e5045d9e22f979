"""langchain-openai."""

import sys

from harness import Kit, main
from sdk import for_a_run, six_cases

OWN = """\
from langchain_openai import ChatOpenAI

print(ChatOpenAI(model="m-small").invoke(open("seed-04.txt").read()).content)
"""


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    return text.replace("model.invoke(", "model.stream(").replace("print(answer.content)", 'print("|".join(c.content for c in answer))')


def test(kit: Kit) -> None:
    kit.open()
    kit.warm("python", "langchain_openai")
    six_cases(
        kit,
        "langchain-openai",
        lambda **put: kit.python(kit.block("langchain", **put)),
        lambda **put: kit.python(streamed(kit.block("langchain", **put))),
    )
    for_a_run(kit, "langchain-run", "my_eval.py", OWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
