#!/usr/bin/env python3
"""A second verifier of a leafgate ledger: `python3 verify.py FOLDER`. Standard library only, checkpoint signature included.

Exits 0 where the ledger is whole, 1 where it is not (the first problem is printed), 2 where it cannot be read. It reads a ledger that
nobody is writing to: a call that is on its way counts as unclosed here."""
import base64, hashlib, json, pathlib, re, sys

P = 2**255 - 19                                              # Ed25519: RFC 8032 section 5.1, verification only
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

def point(b):
    y = int.from_bytes(b, "little"); sign, y = y >> 255, y & (1 << 255) - 1
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P: x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - x2) % P or x == 0 and sign: raise ValueError("no point on the curve")
    return (P - x if x & 1 != sign else x, y)

def add(a, b):
    t = D * a[0] * b[0] * a[1] * b[1] % P
    return ((a[0] * b[1] + b[0] * a[1]) * pow(1 + t, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, P) % P)

def times(n, a):
    out = (0, 1)
    while n: out, a, n = add(out, a) if n & 1 else out, add(a, a), n >> 1
    return out

def signed(key, text, sig):
    s, h = int.from_bytes(sig[32:], "little"), hashlib.sha512(sig[:32] + key + text).digest()
    return len(sig) == 64 and s < Q and times(s, (X, Y)) == add(point(sig[:32]), times(int.from_bytes(h, "little"), point(key)))

Y = 4 * pow(5, -1, P) % P
X = point(Y.to_bytes(32, "little"))[0]

def sha(*parts): return hashlib.sha256(b"".join(parts)).digest()

def root(stack):                                             # RFC 6962 section 2.1: the whole subtrees, largest first
    out = stack[-1]
    for left in reversed(stack[:-1]): out = sha(b"\x01", left, out)
    return out

def verify(folder):
    name, key_id, key = (folder / "leafgate.pub").read_text().rstrip("\n").split("+", 2)
    key = base64.b64decode(key)
    assert key[:1] == b"\x01" and len(key) == 33 and sha(name.encode(), b"\n", key)[:4].hex() == key_id, "leafgate.pub: no verifier key"
    assert name == "leafgate-" + sha(key[1:])[:8].hex(), "leafgate.pub: its name is not made of its key"
    text, _, signatures = (folder / "checkpoint").read_text().partition("\n\n")
    origin, size, digest = text.split("\n")
    seq, prev, run, stack, at_size, still_open = 0, "0" * 64, None, [], None, {}
    for segment in sorted(folder.glob("*.jsonl")):
        assert re.fullmatch("[0-9]{12}", segment.stem) and int(segment.stem) == seq, f"{segment.name}: {seq} records stand before it"
        with open(segment, "rb") as lines:
            for line in lines:
                who = f"{segment.name}: record {seq}"
                assert line.endswith(b"\n"), f"{who}: torn"
                line = line[:-1]
                assert len(line) <= 65535, f"{who}: too long"
                try: rec = json.loads(line)
                except ValueError: rec = None
                assert type(rec) is dict and json.dumps(rec, sort_keys=True, separators=(",", ":")).encode() == line, f"{who}: not in the one legal form"
                assert (rec.get("v"), rec.get("seq")) == (1, seq), f"{who}: says v {rec.get('v')}, seq {rec.get('seq')}"
                assert rec.get("prev") == prev, f"{who}: does not follow the record before it"
                assert rec.get("log") == name, f"{who}: of another ledger"
                run = rec.get("run") if rec.get("t") == "open" else run
                assert run and rec.get("run") == run, f"{who}: of another run"
                assert rec.get("t") in ("open", "stop", "config", "decision", "outcome", "refused"), f"{who}: unknown t"
                assert "call" in rec or rec["t"] not in ("decision", "outcome"), f"{who}: names no call"
                assert rec.get("leaf", "hold") in ("hold", "split", "release"), f"{who}: unknown leaf"
                if rec["t"] == "decision" and rec.get("verdict") == "forward": still_open[seq] = rec["call"]
                if rec["t"] == "outcome": assert still_open.pop(rec.get("of"), None) == rec["call"], f"{who}: the outcome of no open decision"
                assert rec["t"] != "stop" or not still_open, f"record {min(still_open)}: forwarded and has no outcome"
                prev, leaf, n = sha(line).hex(), sha(b"\x00", line), seq
                while n & 1: leaf, n = sha(b"\x01", stack.pop(), leaf), n >> 1
                stack.append(leaf)
                seq += 1
                if seq == int(size): at_size = root(stack)
    assert seq, "no record is here"
    blobs = [base64.b64decode(s.split(" ")[2]) for s in signatures.splitlines() if s.startswith(f"\u2014 {name} ")]
    assert origin == name and any(b[:4].hex() == key_id and signed(key[1:], (text + "\n").encode(), b[4:]) for b in blobs), "checkpoint: no signature verifies"
    assert int(size) <= seq, f"checkpoint: covers {size} records, {seq} are here"
    assert at_size and base64.b64encode(at_size).decode() == digest, f"checkpoint: the root of its {size} records is another; record {int(size) - 1} was changed, or all"
    assert not still_open, f"record {min(still_open)}: forwarded and has no outcome"
    return seq

if __name__ == "__main__":
    try: print(f"whole: {verify(pathlib.Path(sys.argv[1]))} records")
    except (AssertionError, KeyError, ValueError) as problem: sys.exit(print(problem) or 1)
    except (OSError, IndexError) as problem: sys.exit(print(problem, file=sys.stderr) or 2)
