"""Tries to change leafgate's own files and to read its keys: `NAME open|shut DETAIL` for each. Where a try succeeds it is undone, so that the next one can be tried.

The first argument is a folder two levels above leafgate's own, the second the way from there to it.
"""

import ctypes
import os
import sys

top, inner = sys.argv[1:3]
base = os.path.join(top, inner)
libc = ctypes.CDLL(None, use_errno=True)
EXCHANGE = 2


def report(name, function):
    try:
        print(name, "open", str(function())[:80], flush=True)
    except OSError as error:
        print(name, "shut", error.strerror, flush=True)


def append(path):
    with open(path, "ab") as f:
        return f.write(b" ")


def rename(path):
    os.rename(path, path + ".away")
    os.rename(path + ".away", path)
    return "renamed"


def exchange(path):
    # For what is of the same kind beside it.
    other = path + ".other"
    if os.path.isdir(path):
        os.mkdir(other)
    else:
        open(other, "w").close()
    try:
        for _ in range(2):
            if libc.renameat2(-100, path.encode(), -100, other.encode(), EXCHANGE) < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
    finally:
        os.rmdir(other) if os.path.isdir(other) else os.unlink(other)
    return "exchanged"


def replace(path):
    with open(path, "rb") as f:
        text = f.read()
    with open(path + ".new", "wb") as f:
        f.write(text)
    try:
        os.rename(path + ".new", path)
    finally:
        if os.path.exists(path + ".new"):
            os.unlink(path + ".new")
    return "replaced"


def link(path):
    os.link(path, os.path.join(top, "linked"))
    os.unlink(os.path.join(top, "linked"))
    return "linked"


def mode(path):
    os.chmod(path, os.stat(path).st_mode)
    return "mode set"


def secret(path):
    with open(path, "rb") as f:
        text = f.read()
    if not text:
        raise OSError(2, "empty")
    return f"{len(text)} bytes"


FILES = ["policy.toml", "fixtures.lock", "glue.json", "cards/seed-04.json"]
for file in FILES:
    path = os.path.join(base, file)
    for function in (append, rename, exchange, replace, link, mode):
        report(f"{function.__name__}_{file}", lambda: function(path))
folder = base
while len(folder) >= len(top):
    for function in (rename, exchange):
        report(f"{function.__name__}_folder_{len(folder) - len(top)}", lambda: function(folder))
    folder = os.path.dirname(folder)
for name in ("cards", "ledger"):
    for function in (rename, exchange):
        report(f"{function.__name__}_{name}", lambda: function(os.path.join(base, name)))


def new_card():
    path = os.path.join(base, "cards", "new.json")
    with open(path, "w") as f:
        f.write("{}")
    os.unlink(path)
    return "made"


report("new_card", new_card)
for file in ("ledger/leafgate.key", "ledger/mac.key", "ledger/000000000000.jsonl", "credential"):
    report(f"read_{file}", lambda: secret(os.path.join(base, file)))
report("rename_credential", lambda: rename(os.path.join(base, "credential")))
report("write_beside", lambda: append(os.path.join(base, "beside")))
