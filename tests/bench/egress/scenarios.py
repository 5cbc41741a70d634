"""What is measured. A scenario gives, per contestant, a list of samples (one a turn): {measure: number}."""
import json
import os
import pathlib
import subprocess

from contestants import DENIED, Cofferdam, Transparent

BIN = pathlib.Path(os.environ.get("COFFERDAM_BIN", "build/rel/bin")).resolve()


def load(contestant, kind, way, **words):
    """One load to its end; what it printed, with the proxy's CPU seconds beside it."""
    words = {**contestant.ways(way), **words}
    argv = ["ip", "netns", "exec", contestant.namespace, BIN / "bench-egress-load", kind,
            *(f"{k}={v}" for k, v in words.items())]
    before = contestant.cpu()
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{contestant.name}: {kind}: {done.stderr.strip()}")
    return {**json.loads(done.stdout), "cpu": contestant.cpu() - before}


def tunnels(contestant, scale):
    out = load(contestant, "tunnels", "tunnels", connections=32, ms=scale.ms)
    return {"per_second": out["per_second"], "cpu_10k": out["cpu"] * 10000 / max(out["count"], 1),
            "p99_us": out["p99_us"], "errors": out["errors"]}


def gets(contestant, scale):
    out = load(contestant, "gets", "gets", connections=32, ms=scale.ms)
    return {"per_second": out["per_second"], "cpu_10k": out["cpu"] * 10000 / max(out["count"], 1),
            "errors": out["errors"], "reconnects": out["reconnects"]}


def bulk(connections, direction):
    def measure(contestant, scale):
        out = load(contestant, "bulk", direction, connections=connections, ms=scale.ms, direction=direction)
        # The run-up costs CPU too; it is counted with the bytes that it moved, at the same speed.
        moved = out["bytes"] * (1 + 300 / scale.ms)
        return {"mb_per_second": out["mb_per_second"], "cpu_gb": out["cpu"] * 1e9 / max(moved, 1)}
    return measure


def latency(contestant, scale):
    out = load(contestant, "gets", "gets", connections=64, ms=scale.ms, rate=scale.rate)
    return {"p50_us": out["p50_us"], "p99_us": out["p99_us"], "errors": out["errors"]}


def denials(contestant, scale):
    out = load(contestant, "denials", "denials", connections=32, ms=scale.ms)
    return {"per_second": out["per_second"], "errors": out["errors"]}


def denial_latency(contestant, scale):
    out = load(contestant, "denials", "denials", connections=64, ms=scale.ms, rate=1000)
    return {"p50_us": out["p50_us"], "p99_us": out["p99_us"], "errors": out["errors"]}


# key → how one turn is measured
SIDE_BY_SIDE = {
    "connect": tunnels, "gets": gets, "latency": latency, "bulk1": bulk(1, "down"), "bulk4": bulk(4, "down"),
    "bulk64": bulk(64, "down"), "up4": bulk(4, "up"), "denials": denials, "denial1000": denial_latency,
}


def can(contestant, key):
    way = {"connect": "tunnels", "gets": "gets", "latency": "gets", "denials": "denials", "denial1000": "denials",
           "up4": "up"}.get(key, "down")
    return contestant.missing is None and contestant.ways(way) is not None


def run_side_by_side(key, direct, ours, transparent, peers, scale, note):
    """{contestant: [sample, …]} and {peer: [(our sample just before, its sample), …]}."""
    measure = SIDE_BY_SIDE[key]
    samples, pairs = {}, {}

    def turn(contestant):
        sample = measure(contestant, scale)
        samples.setdefault(contestant.name, []).append(sample)
        return sample

    present = [p for p in peers if can(p, key)]
    for number in range(scale.rounds):
        note(f"{key}: round {number + 1} of {scale.rounds}")
        if can(direct, key):
            turn(direct)
        for peer in present or [None]:
            own = turn(ours)
            if peer:
                pairs.setdefault(peer.name, []).append((own, turn(peer)))
        if can(transparent, key):
            turn(transparent)
        if can(direct, key):
            turn(direct)
    return samples, pairs


def idle(make, world, count, words=None):
    """Bytes of private memory that an idle tunnel costs, from a process that has just started."""
    contestant = make(world)
    try:
        if contestant.missing:
            return None
        load(contestant, "tunnels", "tunnels", connections=8, ms=300)  # what is allocated once is allocated
        before = contestant.private()
        argv = ["ip", "netns", "exec", contestant.namespace, BIN / "bench-egress-load", "hold",
                *(f"{k}={v}" for k, v in {**contestant.ways("hold"), "connections": count, **(words or {})}.items())]
        holder = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            opened = json.loads(holder.stdout.readline())
            grown = contestant.private() - before
        finally:
            holder.stdin.close()
            holder.wait(timeout=60)
        if not opened["open"]:
            return {"open": 0, "errors": opened["errors"], "bytes": None}
        return {"open": opened["open"], "errors": opened["errors"], "bytes": grown / opened["open"]}
    finally:
        contestant.close()


def dns(contestant, scale):
    """Answers from the cache, refusals of one name, and refusals of names of which no two are equal."""
    def ask(name, rcode):
        out = load(contestant, "dns", "dns", name=name, rcode=rcode, ms=scale.ms)
        return {"per_second": out["per_second"], "wrong": out["wrong"], "lost": out["lost"],
                "cpu_10k": out["cpu"] * 10000 / max(out["count"], 1)}
    return {"answers": ask("site.example.com", 0), "denials": ask(DENIED, 3),
            "denials_distinct": ask("n########.example.net", 3)}


def policy_of(count):
    """Rules for `count` other hosts, exact and wildcard."""
    return [f"*.w{i}.example.org" if i % 4 == 0 else f"h{i}.zone{i % 977}.example.org" for i in range(count)]


def rule_counts(world, scale, note, counts):
    """{count: [sample, …]}: the same work against small and large policies, by turns."""
    contestants, samples = {}, {}
    for number in range(scale.rounds):
        for count in counts:
            note(f"rules: {count}, round {number + 1} of {scale.rounds}")
            contestant = Cofferdam(world, policy_of(count - 4))
            try:
                refused = load(contestant, "dns", "dns", name=DENIED, rcode=3, ms=scale.ms)
                tunnel = load(contestant, "tunnels", "tunnels", connections=32, ms=scale.ms)
            finally:
                contestant.close()
            samples.setdefault(count, []).append(
                {"dns_denials": refused["per_second"], "tunnels": tunnel["per_second"],
                 "cpu_10k_denials": refused["cpu"] * 10000 / max(refused["count"], 1),
                 "cpu_10k_tunnels": tunnel["cpu"] * 10000 / max(tunnel["count"], 1)})
    return samples

