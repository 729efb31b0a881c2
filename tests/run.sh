#!/usr/bin/env bash
# Sets up, builds and runs the tests:
#   bash tests/run.sh           the optimised build; everything where CI is set
#   bash tests/run.sh --all     also the format, the trainer, the sanitizers, the fuzz targets, every
#                               model, pages in a browser, the lessons
#   bash tests/run.sh --quick   the optimised build, in CI too
# Tests read data from $COPPICE_DATA (default: shared/data beside the checkout) and skip without it.
set -euo pipefail
source "$(dirname "$0")/../experiments/setup.sh"
trap report_end EXIT

fuzz_seconds=20  # for each target
all=${CI:+yes}
case "${1:-}" in
  '') ;;
  --all) all=yes ;;
  --quick) all= ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
if [ -z "${COPPICE_DATA:-}" ] && [ -d "$root/../shared/data" ]; then
  COPPICE_DATA=$(realpath "$root/../shared/data")
  export COPPICE_DATA
fi

export UBSAN_OPTIONS=print_stacktrace=1

run_tests() {  # run_tests PRESET [OPTION...]
  build "$1" all -DCOPPICE_TESTS=ON "${@:2}"
  say "Testing ($1)"
  (cd "$root" && ctest --preset "$1" -j "$(nproc)")
}

# Seeds in tests/fuzz/corpus/NAME; what a run finds stays in the build folder.
run_fuzz_targets() {
  local target name seeds log=$root/build/debug/fuzz/log
  for target in "$root"/build/debug/fuzz/*_fuzz; do
    name=$(basename "$target" _fuzz)
    say "Fuzzing $name for $fuzz_seconds s"
    mkdir -p "$root/build/debug/fuzz/$name"
    seeds=("$root/build/debug/fuzz/$name")
    [ ! -d "$root/tests/fuzz/corpus/$name" ] || seeds+=("$root/tests/fuzz/corpus/$name")
    "$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 \
      -artifact_prefix="$root/build/debug/fuzz/$name-" "${seeds[@]}" > "$log" 2>&1 ||
      { tail -n 40 "$log"; exit 1; }
    tail -n 1 "$log"
  done
}

packages=("${program_packages[@]}" "${test_packages[@]}")
[ -z "$all" ] || packages+=("${debug_packages[@]}" "${training_packages[@]}")
install_packages "${packages[@]}"
models=(smollm2)
[ -z "$all" ] || models+=(qwen-0.5b qwen-1.5b gemma-270m)
fetch_models "${models[@]}"

if [ -n "$all" ]; then
  say "Checking the format"
  (cd "$root" && find kernels core decoding drafters experiments tests \
    -regex '.*\.\(cpp\|h\|cu\|cuh\)' -exec clang-format --dry-run -Werror {} +)
fi
# Where nvcc is: the CUDA backend too, and what its kernels take of every device.
run_tests release ${all:+-DCOPPICE_CUDA_ALL=ON}
if [ -n "$all" ]; then
  bash "$root/tests/pages.sh"
  say "Running the lessons"
  python3 "$root/tests/lessons.py" "$root/build/release/coppice"
  run_tests debug
  run_fuzz_targets
fi
echo "tests/run.sh: all passed"
