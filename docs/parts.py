"""For verify.py, the parts of a leafgate ledger: the form of a record, the keys, what was pruned, the checkpoint."""
import base64, functools, hashlib, json, re
from ed25519 import signed

PATTERNS = {  # what a field's value is, as JSON text
    '"[0-9a-f]{64}"': "body_mac last plan_sha256 prev received_sha256 sent_sha256 sha256",
    "[0-9]+": "body_len bytes count ms of peer_uid plan_len received_len segment sent_len seq status step",
    "true|false": "clear_text surface_named",
    '".*"': "attach error field host key oracle peer policy reason route score signature sync version",
    r'"[^\\]*"': "call log run t",
    '["{].*': "egress_class failure_label fixture_hash fixture_id host_pin model replay_window",  # shown, or sealed
    "{.*": "bind dropped recovered",
    r"\[.*": "residue",
    '{("[a-z0-9_]+":[0-9]+,?)*}': "counts",
    r'\[("[0-9a-f]{64}",?)*\]': "tree",
    r'\[(\[[0-9]+,"[^"]*"\],?)*\]': "open",
    '"(hold|split|release)"': "leaf",
    '"(forward|refuse|local)"': "verdict",
    '"(none|partial|all|unknown)"': "sent",
    '"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z"': "time",
    "1": "v",
}
PATTERN = {name: re.compile(pattern) for pattern, names in PATTERNS.items() for name in names.split()}

EVERY = set("log prev run seq t time v".split())
FIELDS = {  # what a record of each type has besides, and what it may have
    "open": ("oracle policy sync version", "key recovered"),
    "stop": ("policy", ""),
    "config": ("policy", "error"),
    "decision": ("call leaf reason step verdict", "attach bind body_len body_mac clear_text dropped egress_class failure_label"
                 " field fixture_hash fixture_id host host_pin peer_uid plan_len plan_sha256 replay_window residue route surface_named"),
    "outcome": ("call of sent", "error model ms peer received_len received_sha256 score sent_len sent_sha256 status"),
    "refused": ("reason", "bytes count peer_uid"),
    "key": ("key signature", "recovered"),
    "prune": ("bytes count counts key last open segment sha256 signature tree", "recovered"),
}
FIELDS = {t: (EVERY | set(must.split()), set(may.split())) for t, (must, may) in FIELDS.items()}

def check(condition, message):
    if not condition:
        raise ValueError(message)

def record(line):
    """The record in a line without its newline."""
    rec = json.loads(line)
    check(type(rec) is dict and legal(rec) and compact(rec).encode() == line, "is not in the one legal form")
    check(rec.get("t") in list(FIELDS), "has a t that no record has")
    must, may = FIELDS[rec["t"]]
    check(must <= set(rec), "lacks a field of its type")
    check(set(rec) <= must | may, "has a field that its type has not")
    for name, value in rec.items():
        check(PATTERN[name].fullmatch(compact(value)), f"has a {name} that is out of form")
    return rec

compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

def legal(value, room=5):
    """Whether a value is in the part of JSON that a record uses, and nested no deeper than a record is."""
    if type(value) is dict:
        return room > 0 and all(re.fullmatch("[a-z0-9_]+", name) and legal(part, room - 1) for name, part in value.items())
    if type(value) is list:
        return room > 0 and all(legal(part, room - 1) for part in value)
    if type(value) is str:
        return not re.search("[\ud800-\udfff]", value)    # no half of a surrogate pair
    return type(value) is bool or type(value) is int and value in range(2**53)

class Keys:
    """The first key is in an `open` record or in `pruned`, each later one in a `key` record that the key before it signed.
    Each `prune` record is signed by the key in force: without a key nobody can say that a segment was taken away."""
    def __init__(self, public, pruned):
        self.public, self.public_name = public, verifier(public)[0]    # leafgate.pub, which must be the last one
        self.name, self.known = None, {}                    # the name in force, and the keys that records hold by their names
        self.turns = []                                     # which record put which name in force
        if pruned.mark:
            self.put_in_force(pruned.mark["key"], pruned.base)

    def put_in_force(self, line, seq):
        self.name = verifier(line)[0]
        self.known[self.name] = line
        self.turns.append((seq, self.name))

    def named(self, log):
        """Takes the `log` of a record."""
        if not self.name:
            self.name, self.turns = log, [(0, log)]
        check(log == self.name, "is another ledger's")

    def opened(self, line):
        """Takes the `key` of an `open` record; the first versions wrote none."""
        if line is not None:
            check(verifier(line)[0] == self.name, "holds a key that is not the one it names in log")
            check(self.known.setdefault(self.name, line) == line, "holds another key of the same name")

    def rotated(self, rec):
        """Takes a `key` record."""
        self.signs(rec, f"leafgate key rotation v1\n{self.name}\n{rec['key']}\n{rec['seq']}\n{rec['prev']}\n")
        self.put_in_force(rec["key"], rec["seq"])

    def pruned(self, rec):
        """Takes a `prune` record."""
        self.signs(rec, f"leafgate prune v1\n{compact({name: rec[name] for name in rec if name != 'signature'})}\n")

    def signs(self, rec, text):
        check(self.name in self.known, "needs a key that no record before it holds")
        key = verifier(self.known[self.name])[2]
        check(signed(key, text.encode(), unbase64(rec["signature"])), "is not signed by the key in force")

    def end(self):
        """After the last record: whether the key in force is that of leafgate.pub."""
        check(self.turns, "no record is here")
        if self.name == self.public_name:
            self.known.setdefault(self.name, self.public)
        same = self.known.get(self.name) == self.public
        check(same or self.public not in self.known.values(), "leafgate.pub is from before the last rotation, which was cut")
        check(same, f"record {self.turns[-1][0]} and those after it are under another key than leafgate.pub's")

    def signer(self, size):
        """The key that signs the checkpoint: the last one. An older key's says nothing of what stands after its time."""
        turned = self.turns[-1][0]
        check(size > turned, f"does not cover record {turned}, which puts the last key in place: it is older, or was put back")
        return self.known[self.name]

class Pruned:
    """What was pruned: `prune` records say it, and the file `pruned` holds the line of the one that a reader begins after."""
    def __init__(self, text):
        self.mark, self.base, self.prev, self.open, self.tree = None, 0, "0" * 64, {}, []
        self.found = False                                  # whether the record in `pruned` was read in the chain too
        self.said, self.ends = {}, {}                       # of a segment by its first record: what is said, and what was read
        self.here = None                                    # what was read of the segment that has not ended
        if text is not None:
            check(text.endswith("\n") and len(text) <= 65536, "does not hold one line")
            self.mark = record(text[:-1].encode())          # and of the lines up to the end of its segment:
            self.base = prune_facts(self.mark)[1]           # how many they are,
            self.prev = self.mark["last"]                   # the hash of the last one,
            self.open = dict(self.mark["open"])             # decisions without an outcome,
            self.tree = [bytes.fromhex(node) for node in self.mark["tree"]]    # and the whole subtrees, largest first
        self.grown = list(self.tree)                        # those of all lines that were read

    def line_of(self, rec):
        if self.mark and self.mark["seq"] == rec["seq"]:
            check(self.mark == rec, "is not the line in the file pruned")
            self.found = True

    def recorded(self, rec, segment):
        """Takes a `prune` record that stands in this segment."""
        facts = prune_facts(rec)
        first, end = facts[:2]
        check(self.said.setdefault(first, facts) == facts, "says something else than an earlier record of that segment")
        told = {name: rec[name] for name in self.ends.get(first, ())} | {"key": rec["key"].split("+")[0]}
        as_read = end <= segment and self.ends.get(first) == told
        check(first < self.base or as_read, "says something else than is known of that segment")

    def begins(self, segment, prev, still_open, name):
        """Takes that a segment begins; what the one before it held is known then, should a `prune` record say it."""
        if self.here:
            first = self.here["segment"]
            self.ends[first] = {**self.here, "count": segment - first, "last": prev, "key": name,
                                "tree": [node.hex() for node in self.grown], "open": [list(pair) for pair in sorted(still_open.items())]}
        self.here = {"segment": segment, "bytes": 0, "counts": {}}

    def read(self, line, rec):
        """Takes a record of that segment."""
        counts = self.here["counts"]
        self.here["bytes"] += len(line) + 1
        for kind, so in (rec["t"], True), ("forwarded", rec.get("verdict") == "forward"), ("unknown", rec.get("sent") == "unknown"):
            if so: counts[kind] = counts.get(kind, 0) + 1
        push(self.grown, rec["seq"], line)

    def settle(self, size):
        """Whether all is said of what was pruned, and a checkpoint over so many records covers it."""
        if self.mark:
            covered = self.found and self.mark["seq"] < size
            check(covered, f"the file pruned holds record {self.mark['seq']}, and no checkpoint covers that record")
        first = 0
        while first < self.base:
            said = first in self.said and self.said[first][1] <= self.base
            check(said, f"no prune record says what the segment from record {first} on held")
            first = self.said[first][1]

def prune_facts(rec):
    """What a `prune` record says of its segment: its first record, the one after its last, and the rest."""
    check(rec["t"] == "prune", "is no prune record")
    end, still_open = rec["segment"] + rec["count"], [seq for seq, _ in rec["open"]]
    check(rec["count"] > 0 and end <= rec["seq"], "does not say what a segment held")
    check(len(rec["tree"]) == bin(end).count("1"), "does not hold the tree of all lines up to the segment's end")
    check(still_open == sorted(set(still_open)) and all(seq < end for seq in still_open), "has open decisions that cannot be")
    verifier(rec["key"])
    return rec["segment"], end, [rec[name] for name in sorted(FIELDS["prune"][0] - EVERY - {"signature"})]

def verifier(line):
    """Name, ID and key of a verifier key, `NAME+ID+BASE64(1 and the key)`: name and ID are made of the key."""
    blob = unbase64(line.split("+", 2)[-1])
    name = "leafgate-" + sha(blob[1:])[:8].hex()
    key_id = sha(name.encode(), b"\n", blob)[:4]
    check(line.startswith(f"{name}+{key_id.hex()}+") and len(blob) == 33 and blob[0] == 1, "holds no verifier key")
    return name, key_id, blob[1:]

def checkpoint(note):
    """How many records a C2SP checkpoint covers, and their root."""
    form = "[^\n]+\n[1-9][0-9]*\n[^\n]+\n\n(\u2014 [^ \n]+ [^ \n]+\n)+"
    check(re.fullmatch(form, note), "is not in the form of a C2SP checkpoint")
    _, size, root, *_ = note.split("\n")
    return int(size), unbase64(root)

def note_signed(note, line):
    """Whether a note is about the log of this verifier key, and that key signed it."""
    name, key_id, key = verifier(line)
    text, signatures = note.split("\n\n")
    signatures = [signature.split(" ") for signature in signatures.removesuffix("\n").split("\n")]
    blobs = [unbase64(blob) for _, _, blob in signatures]
    of_key = [blob[4:] for (_, who, _), blob in zip(signatures, blobs) if who == name and blob[:4] == key_id]
    return text.split("\n")[0] == name and any(signed(key, (text + "\n").encode(), signature) for signature in of_key)

def root(pruned, size, lines):
    """The root (RFC 6962 section 2.1) over so many lines: what was pruned, and the first of these, each with its segment."""
    tree = list(pruned.tree)
    for seq, (_, line) in zip(range(pruned.base, size), lines):
        push(tree, seq, line)
    return functools.reduce(lambda right, left: sha(b"\1", left, right), reversed(tree))

def push(tree, seq, line):
    """Adds a line to the whole subtrees of all lines before it."""
    node = sha(b"\0", line)
    while seq & 1:
        node, seq = sha(b"\1", tree.pop(), node), seq >> 1
    tree.append(node)

def unbase64(text):
    blob = base64.b64decode(text)
    check(base64.b64encode(blob).decode() == text, "is not base64 in its one form")
    return blob

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()
