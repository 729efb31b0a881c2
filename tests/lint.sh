#!/usr/bin/env bash
# Reads the code with clang-tidy (.clang-tidy) and the scripts with shellcheck; about 10 s a file.
#   bash tests/lint.sh                      every source file
#   bash tests/lint.sh core/gguf.cpp ...    these
set -euo pipefail
source "$(dirname "$0")/../experiments/setup.sh"
trap report_end EXIT

install_packages "${program_packages[@]}" "${test_packages[@]}" "${debug_packages[@]}" \
  clang-tidy shellcheck
cd "$root"
say "Reading the scripts"
shellcheck experiments/*.sh experiments/peers/*.sh tests/*.sh .ci/run
say "Reading the code"
cmake --preset debug --log-level=NOTICE > /dev/null
files=("$@")
[ $# -gt 0 ] || mapfile -t files < <(find kernels core decoding drafters experiments -name '*.cpp')
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build/debug
echo "tests/lint.sh: nothing found"
