"""The tables of a peers' run, made from its samples: FOLDER/report.md, and README's table between
`<!-- table:peers -->` and `<!-- /table -->`.

    python3 report.py results/peers --readme README.md
    python3 report.py results/peers --readme README.md --check    # exit 1 when they differ
"""

import argparse
import json
import pathlib
import random
import statistics
import sys

RESAMPLES = 10_000
OPENING, CLOSING = "<!-- table:peers -->\n", "<!-- /table -->"


def ratio(numerators, denominators):
    """Sum over sum of paired values, and its 95 % bootstrap interval over the pairs."""
    pairs = list(zip(numerators, denominators))
    value = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
    if len(pairs) < 2:
        return value, None
    source = random.Random(1)  # a report made twice has the same digits
    resampled = []
    for _ in range(RESAMPLES):
        drawn = source.choices(pairs, k=len(pairs))
        resampled.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))
    resampled.sort()
    return value, (resampled[int(0.025 * RESAMPLES)], resampled[int(0.975 * RESAMPLES) - 1])


def ratio_text(value, interval):
    return f"{value:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


class Run:
    """One folder's samples, as seconds by engine, item and round."""

    def __init__(self, folder):
        self.manifest = json.loads((folder / "manifest.json").read_text())
        lines = (folder / "samples.jsonl").read_text().splitlines()
        self.samples = [json.loads(line) for line in lines]
        self.engines = list(self.manifest["engines"])
        settings = self.manifest["settings"]
        batch = settings["batch"] * (settings["batch_new_tokens"] - 1)
        self.tokens = {  # behind the seconds of an item
            "decode": settings["new_tokens"] - 1,
            "prompt lookup": settings["new_tokens"] - 1,
            "prefill": settings["prefill_tokens"],
            "batch": batch,
        }

    def seconds(self, engine, item):
        """round -> seconds"""
        found = {}
        for sample in self.samples:
            if sample["engine"] == engine and sample["item"] == item:
                key = "seconds" if item == "prefill" else "decode_s"
                found[sample["round"]] = sample[key]
        return found

    def speed(self, engine, item):
        """Tokens a second over all rounds; None when it was not measured."""
        seconds = self.seconds(engine, item)
        return self.tokens[item] * len(seconds) / sum(seconds.values()) if seconds else None

    def ours_over(self, engine, item):
        """How many times an engine's speed ours is, over the rounds that both measured."""
        ours, theirs = self.seconds("coppice", item), self.seconds(engine, item)
        both = sorted(set(ours) & set(theirs))
        return ratio([theirs[r] for r in both], [ours[r] for r in both]) if both else None

    def lookup_gain(self, engine):
        plain, lookup = self.seconds(engine, "decode"), self.seconds(engine, "prompt lookup")
        both = sorted(set(plain) & set(lookup))
        return ratio([plain[r] for r in both], [lookup[r] for r in both]) if both else None

    def row_costs(self, engine):
        """n -> median over rounds of t(n) / t(1)."""
        costs = {}
        for sample in self.samples:
            if sample["engine"] == engine and sample["item"] == "rows":
                for rows, seconds in sample["seconds"].items():
                    costs.setdefault(int(rows), []).append(seconds / sample["seconds"]["1"])
        return {rows: statistics.median(values) for rows, values in sorted(costs.items())}

    def same_text(self, engine):
        """Of the rounds that both decoded, in how many the ids are ours."""
        ids = {}
        for sample in self.samples:
            if sample["item"] == "decode":
                ids.setdefault(sample["engine"], {})[sample["round"]] = sample["first_ids"]
        ours, theirs = ids.get("coppice", {}), ids.get(engine, {})
        both = set(ours) & set(theirs)
        return sum(ours[r] == theirs[r] for r in both), len(both)

    def disturbances(self, who):
        """Processor time of `who` during each measurement, over its time."""
        # A clock tick is 10 ms: too coarse for the shortest.
        return [s[who] / max(s["elapsed_s"], 0.5) for s in self.samples]


def speed_cell(run, engine, item):
    speed = run.speed(engine, item)
    if speed is None:
        return "-"
    text = f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"
    if engine == "coppice":
        return f"**{text}**"
    return f"{text} ({ratio_text(*run.ours_over(engine, item))})"


def table(runs):
    """One line an engine and model."""
    header = ["model", "engine", "decode tok/s", "prefill tok/s", "with prompt lookup", "its gain"]
    header += ["8 sequences", "cost of 2, 4, 8, 16 rows"]
    lines = ["| " + " | ".join(header) + " |", "|---|---|" + "---:|" * (len(header) - 2)]
    for run in runs:
        for engine in run.engines:
            gain = run.lookup_gain(engine)
            costs = run.row_costs(engine)
            cells = [run.manifest["title"], engine]
            cells += [speed_cell(run, engine, item) for item in ("decode", "prefill", "prompt lookup")]
            cells += [ratio_text(*gain) if gain else "-", speed_cell(run, engine, "batch")]
            cells += [", ".join(f"{c:.2f}" for n, c in costs.items() if n > 1) or "-"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def run_text(run):
    manifest, settings = run.manifest, run.manifest["settings"]
    out = f"## {manifest['title']}\n\n"
    out += f"{manifest['model']['file']} on {manifest['machine']['cpu']}, "
    out += f"{manifest['threads']} threads; {settings['rounds']} rounds, each with one of the "
    out += f"prompts {', '.join(manifest['prompts'])}; {settings['new_tokens']} new tokens "
    out += f"({settings['batch_new_tokens']} for each of {settings['batch']} sequences).\n\n"
    for engine, about in manifest["engines"].items():
        same, of = run.same_text(engine)
        rounds = len(run.seconds(engine, "decode"))
        out += f"- {engine} {about['version']}: {about['settings']}; {rounds} round{'' if rounds == 1 else 's'}; "
        out += f"the same {settings['new_tokens']} ids as ours in {same} of {of}.\n"
    for engine, why in manifest["left_out"].items():
        out += f"- {engine}: left out: {why}\n"
    for entry in manifest["unanswered"]:
        out += f"- {entry['engine']}, {entry['item']}: not measured: {entry['why']}\n"
    for who, key in (("the waiting engines", "others_cpu_s"), ("other programs", "foreign_cpu_s")):
        shares = run.disturbances(key)
        out += f"\nWhile an engine was measured, {who} used {100 * statistics.median(shares):.1f} % of"
        out += f" a processor in the median, at most {100 * max(shares):.1f} %."
    out += "\n"
    return out


DEFINITIONS = """## Definitions

Every engine is a process of its own that holds the model and waits; one at a time is asked for one
figure, engine after engine, round after round, the order turning. All read the same file and the
same token ids, decode greedily and never draw a token that ends the answer. **Decode** is from an
answer's first token to its last, **prefill** from a prompt's ids to its first token. In brackets
behind a peer's speed: how many times as fast coppice was, time over time of the rounds that both
measured, with 95 % of 10,000 resamples of the rounds. **Prompt lookup** drafts 3 tokens, n-grams of
up to 3; **its gain** is over the same engine's own decoding. **8 sequences** counts the tokens of
all. **Cost of n rows**: a pass over n positions of one sequence, the logits of all wanted, over a
pass of one (medians). An engine whose time is spent sits out the later rounds. `-`: not measured.
"""


def report(runs):
    parts = ["# Peers\n", table(runs), *map(run_text, runs), DEFINITIONS]
    return "\n".join(parts)


def with_table(readme, text):
    begin = readme.index(OPENING) + len(OPENING)
    return readme[:begin] + text + readme[readme.index(CLOSING, begin) :]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    folders = sorted(path.parent for path in arguments.folder.glob("*/manifest.json"))
    runs = [Run(folder) for folder in folders]
    wanted = {arguments.folder / "report.md": report(runs)}
    if arguments.readme:
        wanted[arguments.readme] = with_table(arguments.readme.read_text(), table(runs))
    for path, text in wanted.items():
        if not arguments.check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path}: is not what the samples give; run report.py without --check")


if __name__ == "__main__":
    main()
