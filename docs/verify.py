#!/usr/bin/env python3
"""A second verifier of a leafgate ledger: `python3 verify.py FOLDER`, beside parts.py and ed25519.py; Python 3.10, nothing else.
Exits 0: it is whole; 1: it is not, and the first problem is printed; 2: it cannot be read. Nobody may be writing to it."""
import os, pathlib, re, sys
sys.dont_write_bytecode = True
from parts import Keys, Pruned, check, checkpoint, note_signed, record, root, sha

class Ledger:
    def __init__(self, folder):
        self.folder, self.at = folder, folder               # what is looked at: a problem is there
        self.run, self.t = None, None                       # of the record that was read last
        self.begun = -1                                     # the last record that begins a run; of signed ones in a row the first
        self.must_cover = 0                                 # how many records the checkpoint covers at least

    def text(self, name):
        self.at = name
        path = self.folder / name
        check(path.is_file() or not path.exists(), "is no regular file")
        with open(path, "rb") as file:
            text = file.read(65537)
        check(len(text) <= 65536, "is longer than 65,536 bytes")
        return text.decode()

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
        return f"{self.seq - self.pruned.base} records here, {self.pruned.base} pruned, {self.seq - self.size} under no signature yet"

    def lines(self):                                        # each with the first record of its segment
        seq = self.pruned.base
        for path in sorted(self.folder.glob("*.jsonl")):
            try: os.fsencode(path.name).decode()
            except UnicodeDecodeError: continue             # no name that leafgate writes
            self.at = path.name
            check(re.fullmatch("[0-9]{12}", path.stem), "is no segment's name")
            if int(path.stem) < self.pruned.base: continue  # what a cut prune left
            check(int(path.stem) == seq, f"{seq} records stand before it")
            check(path.is_file(), "is no regular file")
            with open(path, "rb") as file:
                while line := file.readline(65537):
                    self.at = f"{path.name}: record {seq}"
                    check(len(line) <= 65536, "is longer than 65,535 bytes")
                    check(line.endswith(b"\n"), "is torn")
                    yield int(path.stem), line[:-1]
                    seq += 1

    def take(self, segment, line, rec):
        check(rec["seq"] == self.seq, f"says seq {rec['seq']}")
        check(rec["prev"] == self.prev, "does not follow the record before it")
        self.keys.named(rec["log"])
        self.pruned.line_of(rec)
        self.in_its_run(rec["t"], rec["run"])
        if segment == self.seq: self.pruned.begins(segment, self.prev, self.open, self.keys.name)
        match rec["t"]:
            case "open": self.keys.opened(rec.get("key"))
            case "key": self.keys.rotated(rec)
            case "prune":
                self.keys.pruned(rec)
                self.pruned.recorded(rec, segment)
            case "decision" if rec["verdict"] == "forward": self.open[self.seq] = rec["call"]
            case "outcome": check(self.open.pop(rec["of"], None) == rec["call"], "is the outcome of no open decision")
            case "stop": self.all_closed()
        self.seq, self.prev = self.seq + 1, sha(line).hex()
        self.pruned.read(line, rec)

    def in_its_run(self, t, run):
        amid = self.run is None and self.pruned.base > 0    # what was pruned ended amid a run
        if t in ("key", "prune"): check(run != self.run, "is not a run of its own")
        elif t != "open": check(amid or run == self.run and self.t not in ("key", "prune"), "stands in another run than it names")
        if t in ("open", "key", "prune") and not t == self.t == "prune": self.begun = self.must_cover = self.seq
        # Every start writes a checkpoint before anything but the outcomes of a crash and a clock that was set back.
        if t in ("decision", "refused", "stop"): self.must_cover = self.begun + 1
        self.run, self.t = run, t

    def all_closed(self):
        if self.open: self.at = f"record {min(self.open)}"
        check(not self.open, "was forwarded and has no outcome")

    def covered(self, note):
        size, signed_root = checkpoint(note)
        self.size = size
        self.pruned.settle(size)
        check(note_signed(note, self.keys.signer(size)), "no signature verifies")
        check(size >= self.must_cover, f"does not cover record {size}, as it did before the last run went on: it is older, or was put back")
        check(size <= self.seq, f"covers {size} records, {self.seq} are here")
        found = root(self.pruned, size, self.lines())
        self.at = "checkpoint"
        check(found == signed_root, f"has another root: record {size - 1}, its last, was changed, or all were rewritten")

if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__)
        sys.exit(2)
    ledger = Ledger(pathlib.Path(sys.argv[1]))
    try:
        print("whole:", ledger.verify())
    except (OSError, ValueError, RecursionError) as problem:
        print(ascii(f"{ledger.at}: {problem}")[1:-1])
        sys.exit(2 if isinstance(problem, OSError) and not any(ledger.folder.glob("*.jsonl")) else 1)
