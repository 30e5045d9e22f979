"""Random bits: one bit flipped somewhere in a file of an ordinary, a rotated or a pruned ledger. `ledger verify` and `docs/verify.py` say the same of it: whole or not,
and which record."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kit import all_whole, check, first, second
from tamper import Copy, made, named

# What a reader without secrets reads.
READ = ("checkpoint", "leafgate.pub", "pruned")


def maintained(binary: str, folder: Path, *does: str) -> None:
    done = subprocess.run([binary, "ledger", *does[:1], str(folder), *does[1:]], capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, f"ledger {does[0]}: {done.stdout}{done.stderr}")


def ledgers(binary: str, top: Path) -> dict[str, Path]:
    """An ordinary ledger, the same with another key, and that one pruned."""
    (top / "plain").mkdir()
    plain = made(binary, top / "plain")
    found = {"plain": plain, "rotated": top / "rotated", "pruned": top / "pruned"}
    Copy(plain).write(found["rotated"])
    for name in ("leafgate.key", "mac.key"):
        (found["rotated"] / name).chmod(0o600)
    maintained(binary, found["rotated"], "rotate-key")
    shutil.copytree(found["rotated"], found["pruned"])
    maintained(binary, found["pruned"], "seal")
    maintained(binary, found["pruned"], "prune", "--before", "2100-01-01", "--yes")
    check((found["pruned"] / "pruned").exists(), "nothing was pruned")
    return found


def cases(binary: str, reader: str | None, short: bool, seed: int):
    count = 4 if short else 100
    dice = random.Random(seed)

    def flips() -> str:
        top = Path(tempfile.mkdtemp(prefix="leafgate-bits-"))
        work = []
        for name, folder in ledgers(binary, top).items():
            all_whole(binary, folder, reader) if name == "plain" else both_whole(binary, folder)
            files = Copy(folder).files
            sizes = {file: len(data) for file, data in files.items() if file.endswith(".jsonl") or file in READ}
            # The small files are read by less code than they are long: each gets its share.
            for number in range(count):
                file = dice.choices(list(sizes), weights=[max(size, 400) if size else 0 for size in sizes.values()])[0]
                work.append((name, folder, file, dice.randrange(sizes[file]), 1 << dice.randrange(8)))

        def one(number: int) -> tuple[bool, str | None]:
            name, folder, file, at, bit = work[number]
            copy = Copy(folder)
            data = copy.files[file]
            copy.files[file] = data[:at] + bytes([data[at] ^ bit]) + data[at + 1:]
            there = copy.write(top / f"flip-{number}")
            status, found = first(binary, there)
            status2, said2 = second(there)
            shutil.rmtree(there)
            said = found["problem"]
            same = status == status2 and named(said) == named(said2) and "Traceback" not in said2
            return status == 1, None if same else f"{name}: {file}, byte {at}, bit {bit}: {status} {said!r} and {status2} {said2!r}"

        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(one, range(len(work))))
        shutil.rmtree(top)
        wrong = [why for _, why in found if why]
        check(not wrong, f"{len(wrong)} of {len(found)}:\n      " + "\n      ".join(wrong))
        broken = sum(is_broken for is_broken, _ in found)
        check(broken > len(found) * 9 // 10, f"only {broken} of {len(found)} were found")
        return f"{len(found)} flips, {broken} found by both, the same record named; of {len(found) - broken} both say that it is whole"

    return [("tamper: random bits of an ordinary, a rotated and a pruned ledger", flips)]


def both_whole(binary: str, folder: Path) -> None:
    """`all_whole` knows no other keys and no pruned segments."""
    status, found = first(binary, folder)
    check(status == 0, f"ledger verify: {found['problem']}")
    status, said = second(folder)
    check(status == 0, f"docs/verify.py: {said}")
