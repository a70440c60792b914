"""What came out: a line of JSON an episode, the table with intervals, the plot of calibration."""

import json
from pathlib import Path

import numpy as np

Z = 1.96  # of 95 %
BINS = 5
KEY = ("task", "variety", "planner", "kappa", "robot", "seed")


def read(path: Path) -> list[dict]:
    """The episodes so far; a line that was cut off at the end is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def append(path: Path, row: dict) -> None:
    """Adds an episode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else ""
    with path.open("a") as out:
        # What an interrupted run cut off must not take this line with it.
        out.write(("" if not text or text.endswith("\n") else "\n") + json.dumps(row) + "\n")


def key(row: dict) -> tuple:
    """What an episode is known by."""
    return tuple(row.get(name, "two_arms") if name == "robot" else row[name] for name in KEY)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not count:
        return 0.0, 1.0
    share, z2 = hits / count, Z * Z
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z * np.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return float(max(middle - half, 0)), float(min(middle + half, 1))


def bootstrap(values, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of a mean."""
    values = np.asarray(values, float)
    rng = np.random.default_rng(seed)
    means = rng.choice(values, (2000, len(values))).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def summary(rows: list[dict]) -> str:
    """The table, in Markdown."""
    groups: dict[tuple, list[dict]] = {}
    for row in sorted(rows, key=lambda r: tuple(map(str, key(r)))):
        groups.setdefault(key(row)[:-1], []).append(row)
    out = [
        "| task | objects | planner | κ | robot | episodes | success [95 %] | final error, mm [95 %] | decisions | plans | s a decision | neighbours toppled |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (task, variety, planner, kappa, robot), group in groups.items():
        hits, count = sum(r["success"] for r in group), len(group)
        low, high = wilson(hits, count)
        errors = [1000 * r["error_last_m"] for r in group]
        below, above = bootstrap(errors)
        decisions = [d for r in group for d in r["decisions"]]
        seconds = np.median([d["seconds"] for d in decisions]) if decisions else 0.0
        toppled, stood = sum(r["toppled"] for r in group), sum(r["neighbours"] for r in group)
        out.append(
            f"| {task} | {variety} | {planner} | {kappa:g} | {robot} | {count} | {hits / count:.2f} [{low:.2f}, {high:.2f}] "
            f"| {np.mean(errors):.0f} [{below:.0f}, {above:.0f}] | {len(decisions) / count:.1f} "
            f"| {sum(r['plans'] for r in group) / count:.0f} | {seconds:.2f} | {toppled} of {stood} |"
        )
    return "\n".join(out)


def told(rows: list[dict]) -> list[tuple[float, bool, float, float]]:
    """Of every decision that was acted on with a probability: that, what happened, and the errors (m)
    predicted and measured."""
    return [
        (d["success_probability"], d["within_tolerance"], d["reach"], d["error_after_m"])
        for row in rows
        for d in row["decisions"]
        if d["acted"] and d["success_probability"] is not None
    ]


def calibration(rows: list[dict]) -> list[tuple[float, float, float, float, int]]:
    """By fifths of probability: mean predicted, share that succeeded, its interval, how many."""
    found = told(rows)
    out = []
    for k in range(BINS):
        inside = [(p, hit) for p, hit, _, _ in found if min(int(p * BINS), BINS - 1) == k]
        if inside:
            hits = sum(hit for _, hit in inside)
            out.append((float(np.mean([p for p, _ in inside])), hits / len(inside), *wilson(hits, len(inside)), len(inside)))
    return out


def plot(rows: list[dict]) -> str:
    """Predicted probability of success against what happened, as an SVG."""
    size, edge = 300, 46

    def at(x: float, y: float) -> tuple[float, float]:
        return edge + x * size, 12 + (1 - y) * size

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + edge + 14} {size + 60}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><rect x="{edge}" y="12" width="{size}" height="{size}" fill="none" stroke="#888"/>',
        f'<path d="M{edge} {12 + size}L{edge + size} 12" stroke="#bbb" stroke-dasharray="4 4"/>',
    ]
    for k in range(0, 11, 2):
        (x, y), (_, h) = at(k / 10, 0), at(0, k / 10)
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{k / 10:g}</text>')
        parts.append(f'<text x="{edge - 6}" y="{h + 4}" text-anchor="end">{k / 10:g}</text>')
    for predicted, share, low, high, count in calibration(rows):
        (x, y), (_, a), (_, b) = at(predicted, share), at(0, low), at(0, high)
        parts.append(f'<path d="M{x:.1f} {a:.1f}V{b:.1f}" stroke="#1f5fa8" stroke-width="1.5"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#1f5fa8"/><text x="{x + 7:.1f}" y="{y + 4:.1f}">{count}</text>')
    parts.append(f'<text x="{edge + size / 2}" y="{size + 48}" text-anchor="middle">predicted probability of success</text>')
    parts.append(
        f'<text transform="translate(13 {12 + size / 2}) rotate(-90)" text-anchor="middle">share that succeeded, 95 %, number of plans</text>'
    )
    return "\n".join([*parts, "</svg>\n"])
