#!/usr/bin/env python3
"""A second verifier of a leafgate ledger: `python3 verify.py FOLDER`. Standard library only, signatures included.

Exits 0 where the ledger is whole, 1 where it is not (the first problem is printed), 2 where it cannot be read. It reads a ledger that
nobody is writing to: a call that is on its way counts as unclosed here."""
import base64, hashlib, json, pathlib, re, sys

P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493    # Ed25519: RFC 8032 section 5.1, verification only
D = -121665 * pow(121666, -1, P) % P
def point(b):
    y = int.from_bytes(b, "little"); sign, y = y >> 255, y & (1 << 255) - 1
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(x2, (P + 3) // 8, P)
    x = x if (x * x - x2) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - x2) % P or x == 0 and sign: raise ValueError("no point on the curve")
    return (P - x if x & 1 != sign else x, y)
def add(a, b):
    t = D * a[0] * b[0] * a[1] * b[1] % P; i = pow(1 - t * t, -1, P)
    return (a[0] * b[1] + b[0] * a[1]) * (1 - t) * i % P, (a[1] * b[1] + a[0] * b[0]) * (1 + t) * i % P
def times(n, a, out=(0, 1)):
    while n: out, a, n = add(out, a) if n & 1 else out, add(a, a), n >> 1
    return out
B = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
def signed(key, text, sig):
    s, h = int.from_bytes(sig[32:], "little"), hashlib.sha512(sig[:32] + key + text).digest()
    return len(sig) == 64 and s < Q and times(s, B) == add(point(sig[:32]), times(int.from_bytes(h, "little"), point(key)))

def sha(*parts): return hashlib.sha256(b"".join(parts)).digest()
def root(stack, out=b""):                                    # RFC 6962 section 2.1: the whole subtrees, largest first
    for left in reversed(stack): out = sha(b"\x01", left, out) if out else left
    return out
def verifier(line):                                          # NAME+ID+BASE64(1 and the key): the name and the ID are made of the key
    name, key_id, b64 = line.split("+", 2); key = base64.b64decode(b64)
    made = "leafgate-" + sha(key[1:])[:8].hex(), sha(name.encode(), b"\n", key)[:4].hex(), base64.b64encode(key).decode()
    assert len(key) == 33 and key[0] == 1 and made == (name, key_id, b64), "no verifier key"
    return name, bytes.fromhex(key_id), key[1:]
def plain(v):                                                # the part of JSON that a record uses
    if type(v) is dict: return all(re.fullmatch("[a-z0-9_]+", k) and plain(x) for k, x in v.items())
    return all(map(plain, v)) if type(v) is list else type(v) in (str, bool) or type(v) is int and 0 <= v < 2**53
def record(line):
    try: rec = json.loads(line)
    except (ValueError, RecursionError): rec = None
    assert type(rec) is dict and plain(rec) and json.dumps(rec, sort_keys=True, separators=(",", ":")).encode() == line, "not in the one legal form"
    return rec
def facts(rec):                                              # what a prune record says of its segment, and the segment's end
    said = [rec[k] for k in ("segment", "count", "bytes", "sha256", "counts", "last", "tree", "open", "key")]; end = said[0] + said[1]
    assert rec["t"] == "prune" and said[1] and end <= rec["seq"] and len(rec["tree"]) == bin(end).count("1"), "does not say what a segment held"
    return said, end

FIELDS = set("""attach bind body_len body_mac bytes call clear_text count counts dropped egress_class error failure_label field fixture_hash fixture_id host host_pin
    key last leaf log model ms of open oracle peer peer_uid plan_len plan_sha256 policy prev reason received_len received_sha256 recovered replay_window residue route run score
    segment sent sent_len sent_sha256 seq sha256 signature status step surface_named sync t time tree v verdict version""".split())

def verify(folder, at):
    at[0] = "leafgate.pub"; public = (folder / at[0]).read_text().removesuffix("\n"); public_name = verifier(public)[0]
    at[0] = "checkpoint"; text, _, signatures = (folder / at[0]).read_text().partition("\n\n")
    origin, size, digest = text.split("\n"); size = int(size); assert signatures.endswith("\n"), "not in the form of a C2SP checkpoint"
    seq, prev, stack, unclosed, keys, name, began, base, mark = 0, "0" * 64, [], {}, {}, None, 0, 0, None
    run, alone, read, gone, at_size, signer, found = None, False, {}, {}, b"", None, False
    at[0] = "pruned"
    if (folder / "pruned").exists():                         # begin after the last segment that was pruned
        kept = (folder / "pruned").read_bytes(); mark = record(kept[:-1])
        assert kept.endswith(b"\n"), "not one line"
        base = seq = facts(mark)[1]
        prev, stack, unclosed, began = mark["last"], [bytes.fromhex(h) for h in mark["tree"]], dict(mark["open"]), base
        name = verifier(mark["key"])[0]; keys[name] = mark["key"]
    for path in sorted(folder.glob("*.jsonl")):
        at[0] = path.name; assert re.fullmatch("[0-9]{12}", path.stem), "no segment's name"
        if int(path.stem) < base: continue                   # what a cut prune left
        assert int(path.stem) == seq, f"{seq} records stand before it"
        for line in open(path, "rb"):
            at[0] = f"{path.name}: record {seq}"
            assert line.endswith(b"\n"), "torn"
            line = line[:-1]; assert len(line) <= 65535, "too long"
            rec = record(line); t = rec["t"]; name = name or rec["log"]
            assert t in ("open", "stop", "config", "decision", "outcome", "refused", "key", "prune") and rec["v"] == 1, "unknown t or v"
            assert FIELDS.issuperset(rec), "has a field that no record has"
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", rec["time"], re.A), "its time is not RFC 3339, UTC, to the microsecond"
            assert rec.get("leaf", "hold") in ("hold", "split", "release") and rec.get("verdict", "local") in ("forward", "refuse", "local"), "unknown word"
            assert all(re.fullmatch("[0-9a-f]{64}", rec.get(k, "0" * 64)) for k in FIELDS if k in ("body_mac", "last", "prev") or k.endswith("sha256")), "no digest"
            assert rec["seq"] == seq, f"says seq {rec['seq']}"
            assert rec["prev"] == prev, "does not follow the record before it"
            assert rec["log"] == name, "of another ledger"
            if mark and mark["seq"] == seq: assert line + b"\n" == kept, "not the line in pruned"; found = True
            same = rec["run"] == run or run is None and base and t not in ("key", "prune")
            assert t == "open" or t not in ("key", "prune") and same and not alone or t in ("key", "prune") and not same, "of another run"
            run, alone = rec["run"], t in ("key", "prune")
            if t == "open" and "key" in rec: assert verifier(rec["key"])[0] == name and keys.setdefault(name, rec["key"]) == rec["key"], "another key"
            if t == "key":
                said = f"leafgate key rotation v1\n{name}\n{rec['key']}\n{seq}\n{prev}\n".encode()
                assert signed(verifier(keys[name])[2], said, base64.b64decode(rec["signature"])), "not signed by the key before it"
                name, began = verifier(rec["key"])[0], seq; keys[name] = rec["key"]
            if t == "prune":
                said, end = facts(rec); first = said[0]
                assert gone.setdefault(first, (said, end))[0] == said and (first < base or read.get(first) == (end, rec["last"])), "says something else of its segment"
            if t == "decision" and rec["verdict"] == "forward": unclosed[seq] = rec["call"]
            if t == "outcome": assert unclosed.pop(rec["of"], None) == rec["call"], "the outcome of no open decision"
            if t == "stop": assert not unclosed, f"record {min(unclosed)} was forwarded and has no outcome"
            prev, leaf, n = sha(line).hex(), sha(b"\x00", line), seq
            while n & 1: leaf, n = sha(b"\x01", stack.pop(), leaf), n >> 1
            stack.append(leaf); seq += 1
            if seq == size: at_size, signer = root(stack), name
        if seq > int(path.stem): read[int(path.stem)] = seq, prev
    at[0] = "the ledger"; assert seq, "no record is here"
    last = keys.get(name, public if name == public_name else None)
    assert last == public or public not in keys.values(), "leafgate.pub is from before the last rotation, which was cut"
    assert last == public, f"record {began} and those after it are under another key than leafgate.pub's"
    at[0] = "checkpoint"; signer = signer or name; who, key_id, key = verifier(keys.get(signer, public))
    blobs = [base64.b64decode(s.split(" ")[2]) for s in signatures.splitlines() if s.startswith(f"\u2014 {who} ")]
    assert origin == who == signer and any(b[:4] == key_id and signed(key, (text + "\n").encode(), b[4:]) for b in blobs), "no signature verifies"
    assert size <= seq, f"covers {size} records, {seq} are here"
    assert not mark or found and mark["seq"] < size, "does not cover the line in pruned"
    n = 0
    while n < base:
        assert n in gone and gone[n][1] <= base, f"no prune record says what the segment from record {n} on held"
        n = gone[n][1]
    assert base64.b64encode(at_size).decode() == digest, f"the root of its {size} records is another; record {size - 1} was changed, or all"
    assert not unclosed, f"record {min(unclosed, default=0)} was forwarded and has no outcome"
    return f"{seq - base} records" + (f", {base} earlier ones were pruned" if base else "")

if __name__ == "__main__":
    folder, at = pathlib.Path(sys.argv[1] if sys.argv[1:] else ""), [""]
    if not __debug__: sys.exit(print("run it without -O: its checks are assertions", file=sys.stderr) or 2)
    try: print(f"whole: {verify(folder, at)}")
    except (AssertionError, KeyError, TypeError, ValueError) as problem: sys.exit(print(f"{at[0]}: {problem}") or 1)
    except OSError as problem: sys.exit(print(problem, file=sys.stderr) or (1 if any(folder.glob("*.jsonl")) else 2))
