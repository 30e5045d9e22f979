"""llm, the command line program: it streams unless told not to."""

import sys

from harness import Kit, main
from sdk import six_cases


def test(kit: Kit) -> None:
    kit.open()
    kit.warm("llm", "llm.cli,llm.default_plugins.openai_models,openai", "cli")

    def ask(**put):
        kit.file("extra-openai-models.yaml", **put)
        return kit.shell(kit.block("llm"))

    def whole(**put):
        kit.file("extra-openai-models.yaml", **put)
        return kit.shell(kit.block("llm").replace("--key", "--no-stream --key"))

    six_cases(kit, "llm", whole, ask)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
