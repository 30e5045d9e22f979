#!/usr/bin/env python3
"""A second verifier of a leafgate ledger: `python3 verify.py FOLDER`, beside parts.py and ed25519.py; Python 3.10, nothing else.
Exits 0: it is whole; 1: it is not, and the first problem is printed; 2: it cannot be read. Nobody may be writing to it."""
import pathlib, re, sys
sys.dont_write_bytecode = True
from parts import Keys, Pruned, check, checkpoint, note_signed, record, root, sha

class Ledger:
    def __init__(self, folder):
        self.folder, self.at = folder, folder               # what is looked at: a problem is there
        self.run, self.alone = None, False                  # the run that was read last, and whether it is one of a single record

    def text(self, name):
        self.at = name
        return (self.folder / name).read_bytes().decode()

    def verify(self):
        self.pruned = Pruned(self.text("pruned") if (self.folder / "pruned").exists() else None)
        self.seq, self.prev = self.pruned.base, self.pruned.prev    # of the next record
        self.open = self.pruned.open                                # forwarded decisions without an outcome, and their calls
        self.keys = Keys(self.text("leafgate.pub").removesuffix("\n"), self.pruned)
        for segment, line in self.lines():
            self.take(segment, line, record(line))
        self.at = "the ledger"
        self.keys.end()
        self.covered(self.text("checkpoint"))
        self.all_closed()
        return f"{self.seq - self.pruned.base} records here, {self.pruned.base} pruned"

    def lines(self):                                        # each with the first record of its segment
        seq = self.pruned.base
        for path in sorted(self.folder.glob("*.jsonl")):
            self.at = path.name
            check(re.fullmatch("[0-9]{12}", path.stem), "is no segment's name")
            if int(path.stem) < self.pruned.base: continue  # what a cut prune left
            check(int(path.stem) == seq, f"{seq} records stand before it")
            for line in open(path, "rb"):
                self.at = f"{path.name}: record {seq}"
                check(line.endswith(b"\n"), "is torn")
                check(len(line) <= 65536, "is longer than 65,535 bytes")
                yield int(path.stem), line[:-1]
                seq += 1

    def take(self, segment, line, rec):
        check(rec["seq"] == self.seq, f"says seq {rec['seq']}")
        check(rec["prev"] == self.prev, "does not follow the record before it")
        self.keys.named(rec["log"])
        self.pruned.line_of(rec)
        self.in_its_run(rec["t"], rec["run"])
        match rec["t"]:
            case "open": self.keys.opened(rec.get("key"))
            case "key": self.keys.rotated(rec)
            case "prune": self.pruned.recorded(rec, segment)
            case "decision" if rec["verdict"] == "forward": self.open[self.seq] = rec["call"]
            case "outcome": check(self.open.pop(rec["of"], None) == rec["call"], "is the outcome of no open decision")
            case "stop": self.all_closed()
        self.seq, self.prev = self.seq + 1, sha(line).hex()
        self.pruned.ends[segment] = self.seq, self.prev

    def in_its_run(self, t, run):
        amid = self.run is None and self.pruned.base > 0    # what was pruned ended amid a run
        if t in ("key", "prune"): check(run != self.run, "is not a run of its own")
        elif t != "open": check(amid or run == self.run and not self.alone, "stands in another run than it names")
        self.run, self.alone = run, t in ("key", "prune")

    def all_closed(self):
        if self.open: self.at = f"record {min(self.open)}"
        check(not self.open, "was forwarded and has no outcome")

    def covered(self, note):
        size, signed_root = checkpoint(note)
        self.pruned.settle(size)
        check(note_signed(note, self.keys.signer(size)), "no signature verifies")
        check(size <= self.seq, f"covers {size} records, {self.seq} are here")
        found = root(self.pruned, size, self.lines())
        self.at = "checkpoint"
        check(found == signed_root, f"has another root: record {size - 1}, its last, was changed, or all were rewritten")

if __name__ == "__main__":
    ledger = Ledger(pathlib.Path(*sys.argv[1:]))
    try:
        print("whole:", ledger.verify())
    except (OSError, ValueError, RecursionError) as problem:
        print(f"{ledger.at}: {problem}")
        sys.exit(2 if isinstance(problem, OSError) and not any(ledger.folder.glob("*.jsonl")) else 1)
