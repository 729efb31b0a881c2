#!/usr/bin/env bash
# Opens the pages that coppice writes in a real browser, Chromium without a window, and uses them by
# keyboard; screenshots go to build/pages.
#   bash tests/pages.sh           after a build of release; tests/run.sh calls it
# The first time installs selenium into a virtual environment in the user's cache
# (COPPICE_BROWSER names another folder).
set -euo pipefail
source "$(dirname "$0")/../experiments/setup.sh"
trap report_end EXIT

browser=$(realpath -m "${COPPICE_BROWSER:-$cache/coppice/browser-venv}")
selenium=selenium==4.51.0
out=$root/build/pages
coppice=$root/build/release/coppice

install_packages "${program_packages[@]}" "${test_packages[@]}" "${browser_packages[@]}"
if ! "$browser/bin/python" -c 'import selenium' > /dev/null 2>&1; then
  say "Installing selenium into $browser"
  python3 -m venv "$browser"
  "$browser/bin/python" -m pip install --quiet "$selenium"
fi
fetch_models smollm2

say "Writing pages"
rm -rf "$out"
mkdir -p "$out"
rose="Repeat three times: a rose is a rose is a rose."
explain() {  # explain NAME OPTION...
  "$coppice" explain --model smollm2 --prompt "$rose" --html "$out/$1.html" "${@:2}" > "$out/log"
}
explain suffix --method suffix --budget all
explain lookahead --method lookahead --budget all --steps 12
explain coupled --method prompt_lookup --budget all --temperature 0.7 --seed 3 --steps 12
explain rejection --method layer_skip --set exit=24 --budget all --rule rejection --temperature 1 \
  --steps 8
"$coppice" report "$root/results/quickstart" --out "$out/report" > "$out/log"

say "Using them in a browser"
"$browser/bin/python" "$root/tests/pages_browser.py" "$out"
