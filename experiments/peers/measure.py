"""Measures coppice and its peers on one model: every engine a process of its own, one of them at
work at a time, in turn, round by round. Writes FOLDER/manifest.json and FOLDER/samples.jsonl.

    python3 measure.py --model smollm2.gguf --program build/release/coppice --out results/peers/x \\
        --peer llama.cpp=venv/bin/python,llama_cpp_engine.py
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

from protocol import Unanswered, Worker

HERE = pathlib.Path(__file__).resolve().parent
PROMPTS = HERE.parent / "prompts"

ROUND_PROMPTS = ["rewrite-01", "code-01", "qa-01", "rewrite-02", "code-02", "summary-01"]
OTHER_PROMPTS = ["chat-01", "math-01", "translate-01", "qa-02", "chat-02", "math-02", "translate-02"]
DRAFT_LENGTH = 3
PREFILL_TOKENS = 512
ROWS = [1, 2, 4, 8, 16]
ROWS_CONTEXT = 64
BATCH = 8
DISTURBED = 0.15  # share of a processor that other programs may use before a second try
MOST_TRIES = 3
REST_S = 0.3  # between two measurements: threads that spin after work have stopped by then


def read_prompts():
    texts = {}
    for path in sorted(PROMPTS.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            prompt = json.loads(line)
            texts[prompt["id"]] = prompt["prompt"]
    return texts


def items_of(round_ids, other_ids, long_ids, stop_ids, tokens, batch_tokens):
    """What a round measures: name -> request."""
    decode = {"measure": "decode", "stop_ids": stop_ids}
    one = {**decode, "prompts": [round_ids], "new_tokens": tokens}
    return {
        "decode": {**one, "draft_length": 0},
        "prefill": {"measure": "prefill", "ids": long_ids},
        "rows": {"measure": "rows", "context": long_ids[:ROWS_CONTEXT], "rows": ROWS, "repeats": 5},
        "prompt lookup": {**one, "draft_length": DRAFT_LENGTH},
        "batch": {
            **decode,
            "prompts": [round_ids, *other_ids],
            "new_tokens": batch_tokens,
            "draft_length": 0,
        },
    }


def busy_cpu_seconds():
    """Processor time that everything on this machine has used so far."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Run:
    """The workers, the samples so far, and who sits out what."""

    def __init__(self, workers, seconds_per_engine):
        self.workers = workers
        self.budget = seconds_per_engine
        self.samples = []
        self.spent = {worker.name: 0.0 for worker in workers}
        self.unanswered = {}  # (engine, item) -> why

    def measure(self, worker, round_number, item, request):
        """Adds a sample: of a few tries the one that other programs disturbed least."""
        if (worker.name, item) in self.unanswered or self.spent[worker.name] > self.budget:
            return
        tries = []
        while len(tries) < MOST_TRIES:
            try:
                tries.append(self.sample(worker, round_number, item, request))
            except Unanswered as why:
                self.unanswered[worker.name, item] = str(why)
                return
            if tries[-1]["foreign_cpu_s"] <= DISTURBED * tries[-1]["elapsed_s"]:
                break
        self.spent[worker.name] += tries[0]["elapsed_s"]
        self.samples.append(min(tries, key=lambda t: t["foreign_cpu_s"] / t["elapsed_s"]))

    def sample(self, worker, round_number, item, request):
        time.sleep(REST_S)
        others = [other for other in self.workers if other is not worker]
        before = sum(other.cpu_seconds() for other in others)
        own, busy = worker.cpu_seconds(), busy_cpu_seconds()
        start = time.perf_counter()
        reply = worker.ask(**request)
        elapsed = time.perf_counter() - start
        own, busy = worker.cpu_seconds() - own, busy_cpu_seconds() - busy
        used = sum(other.cpu_seconds() for other in others) - before
        ids = reply.pop("ids", None)
        sample = {"round": round_number, "engine": worker.name, "item": item, **reply}
        if ids is not None:
            sample["tokens"] = sum(map(len, ids))
            sample["first_ids"] = ids[0]
        sample["others_cpu_s"] = round(used, 3)
        sample["foreign_cpu_s"] = round(max(0.0, busy - own - used), 3)
        sample["elapsed_s"] = round(elapsed, 3)
        return sample


def start_workers(arguments, log):
    """The engines that come up, coppice first; and why the others did not."""
    ours = [arguments.program, "worker", "--model", arguments.model]
    ours += ["--threads", str(arguments.threads), "--target", arguments.target]
    workers, left_out, descriptions = [], dict(arguments.left_out), {}
    commands = {"coppice": (ours, {})}
    for name, python, script, libraries in arguments.peer:
        command = [python, str(HERE / script), arguments.model, str(arguments.threads)]
        commands[name] = (command, {"LLAMA_CPP_LIB_PATH": libraries} if libraries else {})
    for name, (command, environment) in commands.items():
        worker = Worker(name, command, log, environment)
        try:
            descriptions[name] = worker.ask(measure="describe")
            workers.append(worker)
        except Unanswered as why:
            if name == "coppice":
                raise SystemExit(f"coppice: {why}") from None
            left_out[name] = str(why)
    return workers, descriptions, left_out


def peer(text):
    """NAME=PYTHON,SCRIPT[,FOLDER of llama.cpp's libraries]"""
    name, _, rest = text.partition("=")
    parts = rest.split(",")
    return name, parts[0], parts[1], parts[2] if len(parts) > 2 else ""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--title", default="")
    parser.add_argument("--target", default="", help="coppice's instruction set")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batch-tokens", type=int, default=128)
    parser.add_argument("--seconds-per-engine", type=float, default=60)
    parser.add_argument("--peer", action="append", default=[], type=peer)
    parser.add_argument("--left-out", action="append", default=[], type=lambda t: t.split("=", 1))
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    texts = read_prompts()
    log = tempfile.TemporaryFile()
    workers, descriptions, left_out = start_workers(arguments, log)
    coppice = workers[0]
    encoded = coppice.ask(measure="encode", texts=list(texts.values()))
    ids, stop_ids = dict(zip(texts, encoded["ids"])), encoded["stop_ids"]
    long_ids = [token for prompt in ids.values() for token in prompt][:PREFILL_TOKENS]

    run = Run(workers, arguments.seconds_per_engine)
    for number in range(arguments.rounds):
        prompt = ROUND_PROMPTS[number % len(ROUND_PROMPTS)]
        items = items_of(
            ids[prompt],
            [ids[other] for other in OTHER_PROMPTS[: BATCH - 1]],
            long_ids,
            stop_ids,
            arguments.tokens,
            arguments.batch_tokens,
        )
        if number == 0:
            warm = {**items["decode"], "new_tokens": 4}
            for worker in workers:
                worker.ask(**warm)
        for item, request in items.items():
            first = number % len(workers)
            for worker in workers[first:] + workers[:first]:
                run.measure(worker, number, item, request)
        print(f"round {number + 1} of {arguments.rounds}", flush=True)

    for worker in workers:
        worker.close()
    machine = descriptions["coppice"].pop("machine")
    model = descriptions["coppice"].pop("model")
    manifest = {
        "schema": 1,
        "title": arguments.title or model["name"],
        "model": model,
        "machine": machine,
        "threads": arguments.threads,
        "engines": descriptions,
        "left_out": left_out,
        "unanswered": [
            {"engine": engine, "item": item, "why": why}
            for (engine, item), why in run.unanswered.items()
        ],
        "settings": {
            "rounds": arguments.rounds,
            "seconds_per_engine": arguments.seconds_per_engine,
            "new_tokens": arguments.tokens,
            "batch": BATCH,
            "batch_new_tokens": arguments.batch_tokens,
            "draft_length": DRAFT_LENGTH,
            "prefill_tokens": len(long_ids),
            "rows_context": ROWS_CONTEXT,
            "greedy": True,
        },
        "prompts": ROUND_PROMPTS[: arguments.rounds],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    with open(arguments.out / "samples.jsonl", "w") as out:
        for sample in run.samples:
            out.write(json.dumps(sample) + "\n")
    (arguments.out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
