"""litellm, its OpenAI provider."""

import sys

from harness import DOC_CARD, Kit, main
from sdk import for_a_run, six_cases

OWN = """\
import litellm

prompt = open("seed-04.txt").read()
print(litellm.completion(model="openai/m-small", messages=[{"role": "user", "content": prompt}]).choices[0].message.content)
"""


def streamed(text: str) -> str:
    """The same call with a stream asked for."""
    text = text.replace("    extra_headers=", "    stream=True,\n    extra_headers=")
    return text.replace("print(answer.choices[0].message.content)", 'print("|".join(c.choices[0].delta.content or "" for c in answer))')


def test(kit: Kit) -> None:
    kit.open()
    kit.warm("python", "litellm,openai", LITELLM_LOCAL_MODEL_COST_MAP="True")
    six_cases(
        kit,
        "litellm",
        lambda **put: kit.python(kit.block("litellm", **put)),
        lambda **put: kit.python(streamed(kit.block("litellm", **put))),
    )
    # litellm's own retries do not read x-should-retry: a hold is asked again, and held again.
    retries = kit.block("litellm", card=f"{DOC_CARD}-held").replace('api_key="unused"', 'api_key="unused", num_retries=2')
    done, seen = kit.seen(lambda: kit.python(retries))
    seen.nothing_left("residue_present", 3)
    for_a_run(kit, "litellm-run", "my_eval.py", OWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], test))
