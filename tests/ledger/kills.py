"""Kills: SIGKILL at random points under load, at the start and at rotation; what a host saw is on disk, and the next start mends the ledger.

SIGKILL leaves the kernel's page cache alone: this shows the order of record and departure and what a start makes of any state of the files, not what the disk keeps
in a power cut (that is what `faults` asks: no answer before `fdatasync` returned)."""

from __future__ import annotations

import collections
import random
import shutil
import threading
import time

from kit import LABELS, Failed, Gate, Host, answered, all_whole, body, card, check, first, records, sha, split_body, split_card, torn, until

CLIENTS = 16
# Kills of one ledger, before another one is begun: its first start, and its keys, are killed too.
GENERATION = 20
LONG = 9_000_000
SLOW = 100_000


class Load:
    """Sixteen clients, each with its own mix. Keeps which bodies were offered and what was answered."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.seed = 0
        self.lock = threading.Lock()
        self.bodies: dict[str, bytes] = {sha(split_body(label)): split_body(label) for label in LABELS}
        self.answers: list[tuple[str, str, int]] = []
        self.calls = 0

    def run(self, gate: Gate) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._client, args=(gate, random.Random(self.chance.random())), daemon=True) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        return threads

    def _client(self, gate: Gate, chance: random.Random) -> None:
        client = gate.client(10)
        while True:
            reply, verdict = self._call(client, chance)
            if reply.status == 0:
                client.close()
                return
            with self.lock:
                self.answers.append((reply.call, verdict, reply.status))

    def _call(self, client, chance: random.Random):
        with self.lock:
            self.calls += 1
            self.seed += 1
            seed = self.seed
        kind = chance.random()
        if kind < 0.5:
            # Some do not fit into a socket's buffers: the kernel goes on sending what it has after the kill, and has not all of them.
            long = chance.random() < 0.04
            payload = b'{"seed":%d,"model":"tiny","pad":"%s"}' % (seed, b"x" * LONG) if long else body(seed)
            with self.lock:
                self.bodies[sha(payload)] = payload
            return client.call(card(host_pin="local") if long else card(), payload), "forward"
        if kind < 0.75:
            return client.call(split_card(chance.choice(LABELS)), b"{}"), "forward"
        if kind < 0.9:
            return client.call(card(egress_class="machine-local"), b"{}"), "refuse"
        if kind < 0.95:
            return client.call(None, b"{}"), "refuse"
        return client.call(card(), b"", "GET", "/v1/models"), "local"


def held_against(host: Host, load: Load, found: list[dict], known: set[int]) -> int:
    """Every byte that the host saw has its decision among `found`. Gives how many requests came in part."""
    plans = collections.defaultdict(list)
    for record in found:
        if record["t"] == "decision" and record["verdict"] == "forward" and record["seq"] not in known:
            plans[record["plan_sha256"]].append(record)
    whole = [request for request in host.received if request.whole]
    for request in whole:
        decided = plans[sha(request.body)]
        check(decided, f"the host received {len(request.body)} bytes that no forwarding decision on disk covers")
        record = decided.pop()
        check(record["plan_len"] == len(request.body), "plan_len")
    left = [record for decided in plans.values() for record in decided]
    part = [request for request in host.received if not request.whole]
    # The longest first: it fits the fewest.
    for request in sorted(part, key=lambda request: -len(request.raw)):
        fits = [record for record in left if request.head is None
                or record["plan_len"] == request.length and load.bodies[record["plan_sha256"]].startswith(request.body)]
        check(fits, f"the host received {len(request.raw)} bytes of a request that no forwarding decision on disk covers")
        left.remove(fits[0])
    forwards = sum(len(decided) for decided in plans.values()) + len(whole)
    check(host.accepts <= forwards, f"{host.accepts} connections for {forwards} forwarding decisions")
    return len(part)


def answers_held(load: Load, found: list[dict]) -> None:
    """Every answer that a client read has its decision on disk, with the verdict it must have."""
    verdicts = {record["call"]: record["verdict"] for record in found if record["t"] == "decision"}
    for call, verdict, status in load.answers:
        if status == 503:
            continue
        check(call in verdicts, f"an answer with status {status} has no decision on disk")
        check(verdicts[call] == verdict, f"a call with verdict {verdicts[call]}, expected {verdict}")


def nothing_false(host: Host, load: Load, found: list[dict], since: int) -> None:
    """No outcome says that nothing was sent of a body that the host has bytes of. Bodies of a release are offered once."""
    seen = {sha(request.body) for request in host.received if request.whole}
    for request in host.received:
        if not request.whole and len(request.body) > 40:
            seen |= {plan for plan, payload in load.bodies.items() if payload.startswith(request.body)}
    plans = {record["seq"]: record for record in found if record["t"] == "decision" and record["verdict"] == "forward"}
    splits = {sha(split_body(label)) for label in LABELS}
    for record in found:
        if record["t"] == "outcome" and record["of"] >= since and record["sent"] == "none":
            plan = plans[record["of"]]["plan_sha256"]
            check(plan in splits or plan not in seen, f"record {record['seq']} says that nothing was sent, and the host has it")


class Kills:
    def __init__(self, binary: str, count: int, seed: int, reader: str | None):
        self.binary, self.count, self.reader = binary, count, reader
        self.chance = random.Random(seed)
        self.sums: collections.Counter = collections.Counter()

    def run(self) -> str:
        done = 0
        while done < self.count:
            size = min(GENERATION, self.count - done)
            self._generation(size)
            done += size
            print(f"      {done} of {self.count} kills", flush=True)
        s = self.sums
        # A few kills may miss a body on its way or a torn tail; two hundred do not.
        wanted = ("unknown", "requests", "torn", "part") if self.count >= 100 else ("unknown", "requests")
        check(all(s[name] for name in wanted), f"the load met no crash worth the name: {dict(s)}")
        return (f"{s['kills']} kills ({s['at_start']} at the start), {s['calls']} calls, {s['requests']} host requests ({s['part']} in part), "
                f"{s['torn']} torn tails ({s['made']} of them written by the test), {s['unknown']} outcomes unknown, {s['segments']} segments, "
                f"{s['records']} records")

    def _generation(self, kills: int) -> None:
        host = Host(self._answer, SLOW)
        gate = Gate(self.binary, host, settings='segment_bytes = "64KiB"\ncheckpoint_every = "1s"', log="warn",
                    more=f'[hosts.local]\nbase_url = "http://127.0.0.1:{host.port}/v1"\n')
        try:
            for number in range(kills):
                self._kill(gate, host, number)
            host.received, host.accepts = [], 0
            gate.start()
            gate.stop()
            found = all_whole(self.binary, gate.ledger, self.reader)
            check(found[-1]["t"] == "stop", "no stop at the end")
            unknown = sum(record["t"] == "outcome" and record["sent"] == "unknown" for record in found)
            check(first(self.binary, gate.ledger)[1]["facts"]["unknown"] == unknown, "verify counts other unknown outcomes")
            told = gate.command("ledger", "verify", str(gate.ledger)).stdout.decode()
            check(not unknown or f"{unknown} may have left" in told, f"verify does not say that {unknown} may have left: {told}")
            self.sums["unknown"] += unknown
            self.sums["records"] += len(found)
            self.sums["segments"] += len(list(gate.ledger.glob("*.jsonl")))
        except Failed as found:
            kept = gate.dir.with_name(gate.dir.name + "-kept")
            shutil.copytree(gate.dir, kept)
            raise Failed(f"{found}; the files are kept in {kept}") from found
        finally:
            gate.remove()
            host.close()

    def _answer(self, _request) -> bytes:
        if random.random() < 0.2:
            time.sleep(random.random() * 0.1)
        return answered()

    def _kill(self, gate: Gate, host: Host, number: int) -> None:
        chance, load = self.chance, Load(self.chance)
        host.received, host.accepts = [], 0
        before = {record["seq"] for record in records(gate.ledger)} if gate.ledger.exists() else set()
        at_start = chance.random() < (0.5 if number == 0 else 0.25)
        threads: list[threading.Thread] = []
        if at_start:
            gate.spawn()
            time.sleep(chance.random() * 0.06)
        else:
            gate.start()
            self._mended(gate)
            threads = load.run(gate)
            time.sleep(0.02 + chance.random() * 0.5)
        gate.kill()
        for thread in threads:
            thread.join(20)
            check(not thread.is_alive(), "a client hangs after the kill")
        check(host.drained(), "a connection to the host outlived leafgate")
        sums = self.sums
        sums["kills"] += 1
        sums["at_start"] += at_start
        sums["calls"] += load.calls
        sums["requests"] += len(host.received)
        if not gate.ledger.exists():
            return
        # From the files as the kill left them, before a start mends anything.
        found = records(gate.ledger)
        sums["part"] += held_against(host, load, found, before)
        answers_held(load, found)
        nothing_false(host, load, found, len(before))
        if torn(gate.ledger):
            sums["torn"] += 1
        elif found and chance.random() < 0.25:
            # What a power cut in the middle of a write leaves: the beginning of a next record.
            newest = sorted(gate.ledger.glob("*.jsonl"))[-1]
            with open(newest, "ab") as file:
                file.write(b'{"attach":"header","call":"01'[:chance.randrange(1, 29)])
            sums["torn"] += 1
            sums["made"] += 1

    def _mended(self, gate: Gate) -> None:
        """After a start and before any call: a copy of the files is whole for every reader, each forwarded decision has its outcome."""
        copy = gate.dir / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(gate.ledger, copy)
        found = all_whole(self.binary, copy)
        check(found[-1]["t"] in ("open", "outcome"), f"the last record after a start is {found[-1]['t']}")
        closed = 0
        for record in reversed(found):
            if record["t"] == "open":
                check(record.get("recovered", {}).get("closed", 0) == closed, "open.recovered counts other outcomes than were written")
                break
            check((record["sent"], record["error"]) == ("unknown", "crash"), f"record {record['seq']}: {record['sent']}, {record.get('error')}")
            closed += 1

    def twin(self) -> str:
        """Without a kill, with an orderly stop: nothing is unknown. And the checks can fail: a decision that is taken away, or a false outcome, is missed."""
        host, load = Host(), Load(self.chance)
        gate = Gate(self.binary, host, log="warn", more=f'[hosts.local]\nbase_url = "http://127.0.0.1:{host.port}/v1"\n')
        try:
            gate.start()
            threads = load.run(gate)
            check(until(lambda: load.calls > 200, 20), "no load")
            gate.stop()
            for thread in threads:
                thread.join(20)
            check(host.drained(), "a connection to the host outlived leafgate")
            found = all_whole(self.binary, gate.ledger, self.reader)
            # What was on its way at the stop may be closed by it; a crash is nowhere.
            check(all(record.get("error") != "crash" for record in found), "an orderly stop left a call open")
            check("may have left" not in gate.command("ledger", "verify", str(gate.ledger)).stdout.decode() or
                  any(record.get("sent") == "unknown" for record in found), "verify says that something may have left")
            part = held_against(host, load, found, set())
            answers_held(load, found)
            nothing_false(host, load, found, 0)
            seen = {sha(request.body) for request in host.received if request.whole}
            gone = next(record for record in found if record["t"] == "decision" and record["leaf"] == "release" and record.get("plan_sha256") in seen)
            missed(lambda: held_against(host, load, [record for record in found if record is not gone], set()), "a decision that is not there")
            missed(lambda: answers_held(load, [record for record in found if record is not gone]), "an answer without its decision")
            false = [{**record, "sent": "none"} if record["t"] == "outcome" and record["of"] == gone["seq"] else record for record in found]
            missed(lambda: nothing_false(host, load, false, 0), "an outcome that is not true")
            return f"{load.calls} calls, {len(host.received)} host requests ({part} in part), {len(found)} records"
        finally:
            gate.remove()
            host.close()


def missed(run, what: str) -> None:
    try:
        run()
    except Failed:
        return
    raise Failed(f"the check does not see {what}")
