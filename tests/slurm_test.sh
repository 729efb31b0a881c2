#!/usr/bin/env bash
# A sweep through a real Slurm of two nodes on this machine: submitted as an array, collected, a task
# that Slurm loses submitted again, a sweep whose parent was killed taken up again. About 20 seconds.
#   bash tests/slurm_test.sh build/release/coppice build/release/tests/make_tiny_model
set -euo pipefail
program=$(realpath "$1")
maker=$(realpath "$2")
source "$(dirname "$0")/slurm_cluster.sh"

missing() {
  echo "slurm_test: $1 is absent; install slurm-wlm and munge"
  [ -z "${CI:-}" ] || exit 1
  exit 77
}
fail() {
  echo "slurm_test: FAILED: $1"
  tail -n 50 "$folder"/*.txt 2> /dev/null || true
  exit 1
}
for tool in /usr/sbin/slurmctld /usr/sbin/slurmd /usr/sbin/munged; do
  [ -x $tool ] || missing $tool
done

folder=$(mktemp -d)
trap 'stop_slurm; rm -rf "$folder"' EXIT
start_slurm "$folder/cluster"

"$maker" "$folder/tiny.gguf"
echo '{"id": "p1", "prompt": "one two one two one"}' > "$folder/tiny.jsonl"
cat > "$folder/tiny.toml" <<'CONFIG'
[model]
path = "tiny.gguf"
[bench]
raw = true
prompts = "tiny.jsonl"
backend = "reference"
threads = 1
max_new_tokens = 6
warmup = 0
[[method]]
method = "jacobi"
budget = "all"
[sweep]
draft_length = [1, 2, 3, 4]
CONFIG

# Both nodes are busy while a task is taken out of the queue: it never starts, and is lost.
sbatch --quiet --array=0-1 --output=/dev/null --wrap 'sleep 4'
"$program" bench "$folder/tiny.toml" --out "$folder/out" --jobs slurm > "$folder/table.txt" \
  2> "$folder/log.txt" &
parent=$!
until squeue --noheader --array --format='%i %j' | grep -q '^2_2 coppice-tiny'; do sleep 0.1; done
scancel 2_2
wait $parent || fail "the sweep did not end well"
grep -q 'Slurm lost task 2_2 (draft_length=3); submitting it again' "$folder/log.txt" ||
  fail "the lost task was not noticed"
grep -q '4 of 4 cells' "$folder/out/report.md" || fail "not every cell is in the report"
[ "$(grep -c '| jacobi | greedy |' "$folder/table.txt")" = 4 ] || fail "the table lacks a cell"

# The parent is killed while its tasks wait; the next one waits for the same tasks.
sbatch --quiet --array=0-1 --output=/dev/null --wrap 'sleep 4'
"$program" bench "$folder/tiny.toml" --out "$folder/again" --jobs slurm > /dev/null \
  2> "$folder/log.txt" &
parent=$!
until [ -f "$folder/again/slurm.json" ]; do sleep 0.1; done
kill -9 $parent
wait $parent 2> /dev/null || true
"$program" bench "$folder/tiny.toml" --out "$folder/again" --jobs slurm > /dev/null \
  2> "$folder/again.txt" || fail "the second sweep did not end well"
! grep -q submitted "$folder/again.txt" || fail "queued tasks were submitted twice"
grep -q '4 of 4 cells' "$folder/again/report.md" || fail "not every cell was taken up again"

# A cell that fails is named, and no task is submitted again for it.
status=0
"$program" bench "$folder/tiny.toml" --out "$folder/again" --jobs slurm \
  --set 'sweep.draft_length=[1, 1000]' > /dev/null 2> "$folder/log.txt" || status=$?
[ $status = 1 ] || fail "exit code $status for a failed cell"
grep -q '^failed: draft_length=1000' "$folder/log.txt" || fail "the failed cell is not named"
[ "$(grep -c submitted "$folder/log.txt")" = 1 ] || fail "a failed cell was submitted again"
echo "slurm_test: all passed"
