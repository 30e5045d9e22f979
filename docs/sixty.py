#!/usr/bin/env python3
"""A leafgate ledger, checked from its bytes in sixty lines: `python3 sixty.py FOLDER`; Python 3.10, nothing else. Nobody may be writing to it.
Exits 0: each record is in the one form and tied to the one before it, each forwarded call has its outcome, and the key in leafgate.pub
signed the root of them; 1: not so, and why; 2: it cannot say. verify.py also checks fields, runs, rotations and prunes."""
import base64, hashlib, json, pathlib, sys

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493    # Ed25519 (RFC 8032, section 5.1)
D = -121665 * pow(121666, -1, P) % P
def check(so, problem):
    if not so: raise ValueError(problem)
def point(data):
    y = int.from_bytes(data, "little") & (1 << 255) - 1
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    x = x if (x * x - x2) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    check(y < P and (x * x - x2) % P == 0 and (x or not data[31] >> 7), "a signature holds no point")
    return (x if x & 1 == data[31] >> 7 else P - x, y)

def add(a, b):
    both = D * a[0] * b[0] * a[1] * b[1] % P
    return ((a[0] * b[1] + b[0] * a[1]) * pow(1 + both, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - both, -1, P) % P)
def times(n, a):
    return (0, 1) if n == 0 else add(times(n - 1, a), a) if n & 1 else times(n >> 1, add(a, a))
def signed(key, text, sig):
    k, s = hashlib.sha512(sig[:32] + key + text).digest(), int.from_bytes(sig[32:], "little")
    base = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    return len(sig) == 64 and s < ORDER and times(s, base) == add(point(sig[:32]), times(int.from_bytes(k, "little"), point(key)))

def root(nodes):                                            # RFC 6962, section 2.1: level by level, an odd one goes up as it is
    while len(nodes) > 1:
        nodes = [hashlib.sha256(b"\1" + a + b).digest() for a, b in zip(nodes[::2], nodes[1::2])] + nodes[len(nodes) & ~1:]
    return nodes[0]

def verify(folder):
    leaves, prev, waiting = [], "0" * 64, {}                # waiting: forwarded decisions without an outcome
    for path in sorted(folder.glob("*.jsonl")):
        check(path.stem == f"{len(leaves):012}", f"{path.name}: {len(leaves)} records stand before it")
        for line in path.read_bytes().splitlines(keepends=True):
            at, rec = f"record {len(leaves)}", json.loads(line)
            check(json.dumps(rec, sort_keys=True, separators=(",", ":")).encode() + b"\n" == line, f"{at}: not in the one legal form, or torn")
            check(rec["seq"] == len(leaves) and rec["prev"] == prev, f"{at}: does not follow the record before it")
            if rec.get("verdict") == "forward": waiting[rec["seq"]] = rec["call"]
            if rec["t"] == "outcome": check(waiting.pop(rec["of"], None) == rec["call"], f"{at}: the outcome of no open decision")
            prev = hashlib.sha256(line[:-1]).hexdigest()
            leaves.append(hashlib.sha256(b"\0" + line[:-1]).digest())
    check(not waiting, f"record {min(waiting, default=0)}: was forwarded and has no outcome")
    text, signatures = (folder / "checkpoint").read_text().split("\n\n")
    name, key_id, key = (folder / "leafgate.pub").read_text().strip().split("+", 2)
    origin, size, digest = text.split("\n")[:3]
    check(origin == name and 0 < int(size) <= len(leaves), f"the checkpoint covers {size} records of {origin}, {len(leaves)} of {name} are here")
    check(base64.b64encode(root(leaves[:int(size)])).decode() == digest, "the checkpoint has another root")
    blobs = [base64.b64decode(line.split(" ")[2]) for line in signatures.splitlines() if line.split(" ")[1] == name]
    check(any(signed(base64.b64decode(key)[1:], (text + "\n").encode(), b[4:]) for b in blobs if b[:4].hex() == key_id), "it is not signed by the key")
    return f"whole: {len(leaves)} records, {len(leaves) - int(size)} under no signature yet"

if __name__ == "__main__":
    if len(sys.argv) != 2 or (pathlib.Path(sys.argv[1]) / "pruned").exists(): sys.exit(print(__doc__) or 2)
    try: print(verify(pathlib.Path(sys.argv[1])))
    except OSError as problem: sys.exit(print(ascii(str(problem))[1:-1]) or 2)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as problem: sys.exit(print(ascii(str(problem))[1:-1]) or 1)
