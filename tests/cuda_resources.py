#!/usr/bin/env python3
"""Registers, shared memory, spills and occupancy of every CUDA kernel, as ptxas reports them.

    tests/cuda_resources.py check kernels/cuda/resources.txt build/gpu   no spills, no growth
    tests/cuda_resources.py table kernels/cuda/resources.txt build/gpu   prints the new table
    tests/cuda_resources.py keep nvcc ARG...        compiles; the report goes to OBJECT.ptxas

The build compiles through `keep`. A block's threads are the source's __launch_bounds__.
"""
import pathlib
import re
import subprocess
import sys

# Per multiprocessor: threads, blocks, registers, shared memory (bytes). CUDA C++ Programming Guide,
# "Technical specifications per compute capability".
LIMITS = {"sm_80": (2048, 32, 65536, 164 << 10), "sm_90": (2048, 32, 65536, 228 << 10),
          "sm_100": (2048, 32, 65536, 228 << 10)}
COLUMNS = ("kernel", "arch", "threads", "registers", "shared", "spills", "occupancy")
GROWTH = 8  # registers: the step in which they are handed out


def keep(command):
    """Runs nvcc, files what ptxas says beside the object, and lets through what else it says."""
    target = pathlib.Path(command[command.index("-o") + 1])
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    report, rest, ours = [], [], False
    for line in done.stderr.splitlines():
        ours = line.startswith("ptxas info") or (ours and line.startswith("    "))
        (report if ours else rest).append(line)
    if rest:
        print("\n".join(rest), file=sys.stderr)
    target.with_name(target.name + ".ptxas").write_text("\n".join(report) + "\n")
    return done.returncode


def short_name(symbol):
    """multiply<8> of _ZN7coppice4cuda9on_device..8multiplyILi8EEEv...: the kernel's own name."""
    last, at = "", 3 if symbol.startswith("_ZN") else 2
    while (found := re.match(r"\d+", symbol[at:])):
        size = int(found.group())
        at += len(found.group())
        last = symbol[at:at + size]
        at += size
    arguments = re.match(r"I((?:L[a-z]\d+E)+)E", symbol[at:])
    if arguments:
        last += "<" + ", ".join(re.findall(r"L[a-z](\d+)E", arguments.group(1))) + ">"
    return last


def read_reports(folder):
    """(kernel, arch) -> (registers, shared, spilled bytes)."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*.ptxas")):
        key = None
        for line in path.read_text().splitlines():
            if entry := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
                ours = entry.group(1).startswith("_ZN7coppice")  # not those of CUB
                key = (short_name(entry.group(1)), entry.group(2)) if ours else None
                spills = 0
            elif entry := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                spills = int(entry.group(1)) + int(entry.group(2))
            elif key and (entry := re.search(r"Used (\d+) registers", line)):
                shared = re.search(r"(\d+) bytes smem", line)
                found[key] = int(entry.group(1)), int(shared.group(1)) if shared else 0, spills
                key = None
    return found


def occupancy(arch, threads, registers, shared):
    """Part of the threads of a multiprocessor that can be resident, in percent."""
    most_threads, most_blocks, all_registers, all_shared = LIMITS[arch]
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256
    blocks = min(most_blocks, most_threads // (warps * 32), all_registers // (of_warp * warps),
                 all_shared // (-(-shared // 128) * 128 + 1024))
    return 100 * blocks * warps * 32 // most_threads


def read_table(path):
    rows = {}
    if pathlib.Path(path).exists():
        for line in pathlib.Path(path).read_text().splitlines():
            fields = re.split(r"  +", line.strip())
            if len(fields) == len(COLUMNS) and fields[1].startswith("sm_"):
                rows[fields[0], fields[1]] = tuple(map(int, fields[2:]))
    return rows


def threads_of(kernel, source):
    """From the source: the value of its __launch_bounds__."""
    name = kernel.split("<")[0]
    files = sorted(pathlib.Path(source).parent.rglob("*.[ch]*"))
    for path in files:
        own = path.read_text()
        bound = re.search(r"__launch_bounds__\((\w+)(?:, [^)]*)?\)\s+" + name + r"\(", own)
        if bound:  # the file's own constants come first
            return evaluate(bound.group(1), own + "".join(each.read_text() for each in files))
    raise SystemExit(f"{name}: no __launch_bounds__ in {source}")


def evaluate(expression, text):
    if expression.isdigit():
        return int(expression)
    value = re.search(r"constexpr int " + expression + r" = ([^;]+);", text)
    product = 1
    for factor in value.group(1).split("*"):
        product *= evaluate(factor.strip(), text)
    return product


def current_rows(table, folder):
    rows = {}
    source = pathlib.Path(table).parent
    for (kernel, arch), (registers, shared, spills) in read_reports(folder).items():
        threads = threads_of(kernel, source)
        rows[kernel, arch] = (threads, registers, shared, spills,
                              occupancy(arch, threads, registers, shared))
    return rows


def print_table(rows):
    print("# What each kernel takes, as ptxas reports it; occupancy in percent of a multiprocessor's")
    print("# threads. Made by tests/cuda_resources.py table, checked against every build.")
    lines = [COLUMNS] + [(*key, *map(str, rows[key])) for key in sorted(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(field.ljust(width) for field, width in zip(line, widths)).rstrip())


def check(table, folder):
    committed, now = read_table(table), current_rows(table, folder)
    wrong = [] if now else [f"{folder}: no reports; build the target coppice_cuda first"]
    for key, (threads, registers, shared, spills, percent) in sorted(now.items()):
        name = "{} on {}".format(*key)
        if spills:
            wrong.append(f"{name}: spills {spills} bytes")
        if key not in committed:
            wrong.append(f"{name}: not in {table}")
            continue
        old = committed[key]
        if registers > old[1] + GROWTH or shared > old[2] or threads != old[0] or percent < old[4]:
            wrong.append(f"{name}: {registers} registers, {shared} bytes shared, {threads} threads, "
                         f"occupancy {percent}; the table has {old[1]}, {old[2]}, {old[0]}, {old[4]}")
    wrong += ["{} on {}: in the table, not in the build".format(*key)
              for key in sorted(committed)
              if key not in now and key[1] in {arch for _, arch in now}]
    print("\n".join(wrong) if wrong else f"{len(now)} kernels as in {table}")
    return 1 if wrong else 0


def main(arguments):
    if arguments[:1] == ["keep"]:
        return keep(arguments[1:])
    if arguments[:1] == ["check"]:
        return check(*arguments[1:])
    if arguments[:1] == ["table"]:
        return print_table(current_rows(*arguments[1:]))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
