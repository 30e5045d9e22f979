#!/usr/bin/env python3
"""Makes strings.jsonl from the test data in two published crates, unpacked side by side in the folder given: url-2.5.8 and idna-1.1.0.

Every URL, host name and label of the suites, input and expected output alike, each once, as one JSON string a line; the two that are no
Unicode (a lone surrogate) are left out.
"""

import json
import pathlib
import re
import sys
import unicodedata


def suites(root):
    url, idna = root / "url-2.5.8/tests", root / "idna-1.1.0/tests"
    for case in json.loads((url / "urltestdata.json").read_text()):
        if isinstance(case, dict):
            yield from (case.get(key) for key in ("input", "host", "hostname"))
    setters = json.loads((url / "setters_tests.json").read_text())
    for case in (case for key in ("host", "hostname", "href") for case in setters[key]):
        yield from (case["new_value"], case["href"])
        yield from (case["expected"].get(key) for key in ("host", "hostname"))
    for name in ("punycode_tests.json", "bad_punycode_tests.json"):
        for case in json.loads((idna / name).read_text()):
            if isinstance(case, dict):
                yield from (case.get(key) for key in ("decoded", "encoded"))
    for line in (idna / "IdnaTestV2.txt").read_text().splitlines():
        columns = line.split(";")
        if not line.startswith("#") and len(columns) >= 7:
            yield unescaped(columns[0])
            yield from (unescaped(columns[at]) for at in (1, 3, 5) if columns[at].strip())


def unescaped(text):
    text = text.strip(" \t")
    if text == '""':
        return ""
    return re.sub(r"\\u([0-9A-Fa-f]{4})|\\x\{([0-9A-Fa-f]+)\}", lambda m: chr(int(m[1] or m[2], 16)), text)


def shown(text):
    """A JSON string in which whatever an editor may not show, or show elsewhere, is escaped."""
    out = ""
    for char in text:
        plain = unicodedata.category(char)[0] in "LN" and unicodedata.bidirectional(char) not in ("R", "AL")
        out += char if ord(char) >= 0x80 and plain else json.dumps(char)[1:-1]
    return f'"{out}"'


def main():
    strings = dict.fromkeys(text for text in suites(pathlib.Path(sys.argv[1])) if text is not None)
    for text in strings:
        if not any(0xD800 <= ord(char) < 0xE000 for char in text):
            print(shown(text))


main()
