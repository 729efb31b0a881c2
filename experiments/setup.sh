# shellcheck shell=bash disable=SC2034  # the lists are for those who source this file
# What both commands share: Debian packages, the build, the folder of models. Sourced, never run.
# Each part asks first whether its work is done, so that a second run needs no network.
#
#   source "$root/experiments/setup.sh"
#   install_packages "${program_packages[@]}"
#   build release coppice

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-$root}/.cache}
COPPICE_MODELS=$(realpath -m "${COPPICE_MODELS:-$cache/coppice/models}")
export COPPICE_MODELS

program_packages=(cmake ninja-build g++ pkg-config libhwy-dev libeigen3-dev
  libboost-program-options-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libpcre2-dev
  libssl-dev python3 python3-pip)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libboost-context-dev
  libthrust-dev slurm-wlm munge gnuplot-nox)
browser_packages=(chromium chromium-driver fonts-dejavu-core python3-venv)
training_packages=(libtorch-dev libopenblas0-pthread)
debug_packages=(clang libclang-rt-dev clang-format)

# say WHAT: announces a step; report_end names it should the step fail.
step=
say() { step=$1; printf '== %s\n' "$step"; }

# die MESSAGE: one line on standard error, then exit 1.
die() {
  step=
  printf '%s\n' "${0##*/}: $1" >&2
  exit 1
}

# The last line of a command that failed: `trap report_end EXIT`.
report_end() {
  local status=$?
  [ "$status" = 0 ] || [ -z "$step" ] ||
    printf '%s: FAILED (exit %s) at: %s\n' "${0##*/}" "$status" "$step" >&2
}

# install_packages NAME...: installs the Debian packages among these that are missing.
install_packages() {
  if ! command -v dpkg-query > /dev/null; then
    say "No dpkg here: taking as installed, under whatever names: $*"
    return
  fi
  local name missing=() as_root=()
  for name in "$@"; do
    # A multi-arch package answers once for each architecture.
    [[ $(dpkg-query -W -f '${db:Status-Status} ' "$name" 2> /dev/null) == *"installed "* ]] ||
      missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    { command -v sudo && sudo -v; } > /dev/null 2>&1 ||
      die "packages are missing; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  local log
  log=$(mktemp)
  # An update that fails is not the end: one dead source must not stop the others.
  "${as_root[@]}" apt-get -q update > "$log" 2>&1 || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qy -o DPkg::Lock::Timeout=300 \
    install --no-install-recommends "${missing[@]}" >> "$log" 2>&1 < /dev/null ||
    die "apt-get could not install them: $(grep -m 1 '^E:' "$log"); more in $log"
  rm -f "$log"
}

# fetch_models NAME...: see models.sh, which says itself what failed.
fetch_models() {
  step=
  bash "$root/experiments/models.sh" "$@"
}

# build PRESET TARGET [OPTION...]: configures with the CMake options, then builds the target.
build() {
  local preset=$1 target=$2
  say "Building $target ($preset)"
  (cd "$root" && cmake --preset "$preset" --log-level=NOTICE "${@:3}") > /dev/null
  cmake --build "$root/build/$preset" --target "$target" -j "$(nproc)"
}
