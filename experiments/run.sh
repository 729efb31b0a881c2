#!/usr/bin/env bash
# The main job: sets up, builds the program, fetches SmolLM2 and measures speculative decoding.
#   bash experiments/run.sh                            configs/quickstart.toml
#   bash experiments/run.sh my.toml --set KEY=VALUE    another experiment, `coppice bench` options
#   bash experiments/run.sh --resume                   goes on where an interrupted run stopped
# Results go to results/NAME, NAME being the config's; an earlier run's are overwritten.
set -euo pipefail
source "$(dirname "$0")/setup.sh"
trap report_end EXIT

config=$root/configs/quickstart.toml
if [ $# -gt 0 ] && [[ $1 != -* ]]; then config=$1; shift; fi
[ -f "$config" ] || die "$config: no such config"
# Relative inside the checkout: manifests hold no absolute paths.
config=$(realpath --relative-base="$root" "$config")
name=$(basename "$config" .toml)

install_packages "${program_packages[@]}"
# Configured once without the tests' packages; a build that has the tests keeps them.
options=()
[ -f "$root/build/release/CMakeCache.txt" ] || options=(-DCOPPICE_TESTS=OFF)
build release coppice "${options[@]}"
fetch_models smollm2

say "Running $config into results/$name"
cd "$root"
[[ " $* " == *" --resume "* ]] || set -- --overwrite "$@"
build/release/coppice bench "$config" --out "results/$name" "$@"
echo "experiments/run.sh: done; the report is $root/results/$name/report.md"
