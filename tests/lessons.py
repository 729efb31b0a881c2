"""Runs what the lessons tell a reader to run, and compares: python tests/lessons.py PROGRAM [LESSON...]

In experiments/lessons/*.md a block `sh` holds commands; the lines of a block `text` behind it must
come in their output, in their order, with anything between them. A command that needs a model that is
not there is left out, and said so. Every lesson has a config that the program accepts, and three
exercises.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 900  # seconds of a command
LESSONS = ROOT / "experiments" / "lessons"
BLOCKS = re.compile(r"```sh\n(.*?)```\n```text\n(.*?)```", re.S)


def run(program, command):
    folder = program.parent
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
    try:
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, timeout=LIMIT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
    except subprocess.TimeoutExpired:
        return 124, f"not done after {LIMIT} s\n"
    return done.returncode, done.stdout


def missing_model(output):
    return "experiments/models.sh" in output and "coppice: " in output


def compare(output, expected):
    """The first expected line that the output lacks, None where all are there."""
    at = 0
    for line in expected.splitlines():
        if not line.strip():
            continue
        found = output.find(line.rstrip(), at)
        if found < 0:
            return line
        at = found + len(line.rstrip())
    return None


def check(program, lesson):
    text = lesson.read_text()
    faults, left_out = [], 0
    exercises = text.split("**Exercises.**")[-1] if "**Exercises.**" in text else ""
    if len(re.findall(r"^\d\. ", exercises, re.M)) != 3 or exercises.count("*Answer.*") != 3:
        faults.append("has not three exercises with answers")
    if "**Run this.**" not in text or "**What to look for.**" not in text:
        faults.append("lacks a part")
    if not lesson.with_suffix(".toml").exists():
        faults.append("has no config")
    for command, expected in BLOCKS.findall(text):
        status, output = run(program, command)
        if missing_model(output):
            left_out += 1
            continue
        lacks = compare(output, expected)
        expects_error = "coppice: " in expected
        if lacks is not None:
            faults.append(f"$ {command}lacks the line\n  {lacks}\nof\n{output[-3000:]}")
        elif (status != 0) != expects_error:
            faults.append(f"$ {command}ended with {status}\n{output[-2000:]}")
    note = f", {left_out} commands left out: their models are not here" if left_out else ""
    print(f"lessons: {lesson.stem}: {'FAILED' if faults else 'good'}{note}", flush=True)
    for fault in faults:
        print(fault)
    return not faults


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    lessons = [l for l in sorted(LESSONS.glob("*.md"))
               if l.stem != "README" and (not wanted or l.stem in wanted)]
    index = (LESSONS / "README.md").read_text()
    good = all([check(program, lesson) for lesson in lessons])
    for lesson in lessons:
        if f"({lesson.name})" not in index:
            print(f"lessons: README.md does not name {lesson.name}")
            good = False
    sys.exit(0 if good and lessons else 1)


if __name__ == "__main__":
    main()
