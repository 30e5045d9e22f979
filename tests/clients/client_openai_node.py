"""openai-node, on a Node of its own."""

import sys

from harness import Kit, main
from sdk import for_a_run, six_cases

OWN = """\
import OpenAI from "openai";
import { readFileSync } from "node:fs";
const messages = [{ role: "user", content: readFileSync("seed-04.txt", "utf8") }];
console.log((await new OpenAI().chat.completions.create({ model: "m-small", messages })).choices[0].message.content);
"""


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace('{ model: "', '{ stream: true, model: "')
    loop = 'const pieces = [];\nfor await (const c of answer) pieces.push(c.choices[0].delta.content ?? "");\nconsole.log(pieces.join("|"));'
    return text.replace("console.log(answer.choices[0].message.content);", loop)


def test(kit: Kit) -> None:
    kit.open()

    def node(text: str):
        (kit.folder / "my_eval.mjs").write_text(text)
        # A module is looked for beside the program, so the program stands beside a link to them.
        if not (kit.folder / "node_modules").exists():
            (kit.folder / "node_modules").symlink_to(kit.env / "node_modules")
        return kit.run(["node", "my_eval.mjs"])

    six_cases(
        kit,
        "openai-node",
        lambda **put: node(kit.block("openai-node", **put)),
        lambda **put: node(streamed(kit.block("openai-node", **put))),
    )
    for_a_run(kit, "openai-node-run", "my_eval.mjs", OWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
