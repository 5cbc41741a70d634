"""The table: medians, ratios by turns, goals; as text (Markdown) and as JSON."""
import statistics

# key, measure, title, unit, more is better
ROWS = [
    ("connect", "per_second", "new tunnels (peers by CONNECT)", "/s", True),
    ("connect", "cpu_10k", "proxy CPU per 10,000 tunnels", "s", False),
    ("gets", "per_second", "GET of 1 KiB, kept connections", "/s", True),
    ("gets", "cpu_10k", "proxy CPU per 10,000 GET", "s", False),
    ("latency", "p50_us", "GET at a fixed load, median", "µs", False),
    ("latency", "p99_us", "GET at a fixed load, p99", "µs", False),
    ("bulk1", "mb_per_second", "download, 1 tunnel", "MB/s", True),
    ("bulk4", "mb_per_second", "download, 4 tunnels", "MB/s", True),
    ("bulk64", "mb_per_second", "download, 64 tunnels", "MB/s", True),
    ("up4", "mb_per_second", "upload, 4 tunnels", "MB/s", True),
    ("bulk1", "cpu_gb", "proxy CPU per GB, 1 tunnel", "s", False),
    ("bulk64", "cpu_gb", "proxy CPU per GB, 64 tunnels", "s", False),
    ("denials", "per_second", "refused CONNECT", "/s", True),
    ("denial1000", "p99_us", "refused CONNECT at 1,000/s, p99", "µs", False),
]


def median_of(samples, measure):
    values = [s[measure] for s in samples or [] if s.get(measure) is not None]
    return statistics.median(values) if values else None


def ratio(pairs, measure):
    """The median of ours / theirs, each from turns that followed each other."""
    values = [own[measure] / theirs[measure] for own, theirs in pairs or [] if theirs.get(measure)]
    return statistics.median(values) if values else None


def shown(value, unit=""):
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 3
    return f"{value:,.{digits}f}{unit and ' ' + unit}"


class Goals:
    def __init__(self):
        self.rows = []

    def need(self, what, value, limit, at_least, unit="×"):
        met = None if value is None else (value >= limit if at_least else value <= limit)
        self.rows.append({"goal": f"{what} {'≥' if at_least else '≤'} {limit:,} {unit}".strip(), "measured": value,
                          "met": met})


def judge(results):
    goals, side = Goals(), results["side_by_side"]

    def against(peer, key, measure):
        return ratio(side.get(key, {}).get("pairs", {}).get(peer), measure)

    def of_ours(key, measure, name="cofferdam"):
        return median_of(side.get(key, {}).get("samples", {}).get(name), measure)

    goals.need("tunnels per second against squid", against("squid", "connect", "per_second"), 1.5, True)
    goals.need("tunnels per second against tinyproxy", against("tinyproxy", "connect", "per_second"), 1.2, True)
    transparent, squid = of_ours("connect", "per_second", "cofferdam, transparent"), of_ours("connect", "per_second", "squid")
    goals.need("transparent tunnels per second against squid's CONNECT",
               transparent / squid if transparent and squid else None, 1.5, True)
    goals.need("proxy CPU per 10,000 tunnels against squid", against("squid", "connect", "cpu_10k"), 0.5, False)
    goals.need("keep-alive GET per second against squid", against("squid", "gets", "per_second"), 1.5, True)
    for key, count in (("bulk1", 1), ("bulk4", 4), ("bulk64", 64)):
        goals.need(f"throughput of {count} tunnels against haproxy's relay", against("haproxy", key, "mb_per_second"), 1.2, True)
    ours = results["idle"].get("cofferdam") or {}
    goals.need("user memory of an idle tunnel", ours.get("bytes"), 6144, False, "bytes")
    goals.need("denial p99 at 1,000/s", of_ours("denial1000", "p99_us"), 5000, False, "µs")
    dns = results["dns"]
    goals.need("DNS denials per second, one name", median_of(dns["denials"], "per_second"), 30000, True, "/s")
    goals.need("DNS denials per second, no two names equal", median_of(dns["denials_distinct"], "per_second"), 30000, True, "/s")
    rules = results["rules"]
    few, many = (rules[min(rules)], rules[max(rules)]) if rules else (None, None)
    for measure, what in (("cpu_10k_denials", "DNS denials"), ("cpu_10k_tunnels", "tunnels")):
        small, large = median_of(few, measure), median_of(many, measure)
        most, least = max(rules, default=0), min(rules, default=0)
        goals.need(f"CPU of {what} with {most:,} rules against {least}", large / small if small else None, 1.1, False)
    return goals.rows


def text(results):
    lines, side = [], results["side_by_side"]
    names = results["contestants"]
    lines += ["| measure | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for key, measure, title, unit, _ in ROWS:
        entry = side.get(key, {"samples": {}, "pairs": {}})
        cells = []
        for name in names:
            value = None if name == "direct" and "cpu" in measure else median_of(entry["samples"].get(name), measure)
            cell = shown(value)
            against = ratio(entry["pairs"].get(name), measure)
            if against is not None:
                cell += f" (×{against:.2f})"
            cells.append(cell)
        lines.append(f"| {title}, {unit} | " + " | ".join(cells) + " |")
    cells = []
    for name in names:
        entry = results["idle"].get(name)
        cells.append("–" if not entry else f"{shown(entry['bytes'])} of {entry['open']:,}")
    lines.append("| private memory per idle tunnel, bytes | " + " | ".join(cells) + " |")
    lines += ["", "(×N): ours divided by theirs, the median over turns that followed each other.", ""]
    lines += ["| DNS | per second | CPU per 10,000, s | lost |", "|---|---:|---:|---:|"]
    for key, title in (("answers", "answers from the cache"), ("denials", "refusals, one name"),
                       ("denials_distinct", "refusals, no two names equal")):
        samples = results["dns"][key]
        lines.append(f"| {title} | {shown(median_of(samples, 'per_second'))} | {shown(median_of(samples, 'cpu_10k'))} "
                     f"| {shown(median_of(samples, 'lost'))} |")
    lines += ["", "| rules | DNS refusals/s | CPU per 10,000, s | new tunnels/s | CPU per 10,000, s |", "|---:|---:|---:|---:|---:|"]
    for count, samples in results["rules"].items():
        cells = [shown(median_of(samples, m)) for m in ("dns_denials", "cpu_10k_denials", "tunnels", "cpu_10k_tunnels")]
        lines.append(f"| {count:,} | " + " | ".join(cells) + " |")
    lines += ["", "| goal | measured | |", "|---|---:|---|"]
    for row in results["goals"]:
        verdict = {None: "not measured", True: "met", False: "**not met**"}[row["met"]]
        lines.append(f"| {row['goal']} | {shown(row['measured'])} | {verdict} |")
    faults = [f"{name}: {key}: {sum(s.get('errors', 0) for s in samples)} of the exchanges failed"
              for key, entry in side.items() for name, samples in entry["samples"].items()
              if sum(s.get("errors", 0) for s in samples)]
    faults += [f"{name}: {why}" for name, why in results["missing"].items()]
    if faults:
        lines += [""] + [f"- {fault}" for fault in faults]
    return "\n".join(lines)
