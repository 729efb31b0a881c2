#!/usr/bin/env bash
# Measures coppice beside llama.cpp, OpenVINO GenAI and transformers on the same files, prompts and
# threads, interleaved in one run, and writes results/peers and README's table:
#   bash experiments/peers/run.sh                 every run below, about 10 minutes on 2 cores
#   bash experiments/peers/run.sh smollm2         one of them: smollm2, qwen-1.5b, smollm2-avx2
#   bash experiments/peers/run.sh --setup         only installs
# The first time installs the peers into a virtual environment of about 6 GB in the user's cache
# (COPPICE_PEERS names another folder); llama.cpp is built there, which takes minutes.
set -euo pipefail
source "$(dirname "$0")/../setup.sh"
trap report_end EXIT

peers=$(realpath -m "${COPPICE_PEERS:-$cache/coppice/peers-venv}")
python=$peers/bin/python
avx2=$peers/llama-avx2  # llama.cpp's libraries, those of the processor for AVX2 alone
llama="llama-cpp-python==0.3.36"
declare -A left_out=()

# has MODULE: whether the environment can import it.
has() { "$python" -c "import $1" > /dev/null 2>&1; }

# add NAME MODULE PIP-ARGUMENT...: installs a peer; one that cannot be is left out, and said so.
add() {
  local name=$1 module=$2 log
  if has "$module"; then return; fi
  say "Installing $name"
  log=$(mktemp)
  if "$python" -m pip install --quiet "${@:3}" > "$log" 2>&1 && has "$module"; then
    rm -f "$log"
  else
    left_out[$name]="could not be installed: $(grep -i error "$log" | tail -n 1 | cut -c1-160)"
    echo "$name is left out, it ${left_out[$name]}; more in $log"
  fi
}

# Flags of this machine's processor.
has_flag() { grep -qw "$1" /proc/cpuinfo; }

install_peers() {
  install_packages "${program_packages[@]}" python3-venv
  [ -x "$python" ] || { say "Making $peers"; python3 -m venv "$peers"; }
  CXXFLAGS="-include $root/experiments/peers/amx_gcc12.h" CMAKE_ARGS=-DGGML_NATIVE=ON \
    add llama.cpp llama_cpp --no-cache-dir --no-binary llama-cpp-python "$llama"
  add "OpenVINO GenAI" openvino_genai openvino-genai==2026.4.1.0
  add transformers "torch, transformers, gguf" torch==2.15.0 transformers==5.24.0 gguf==0.19.0
  if has_flag avx512f && has llama_cpp && [ ! -d "$avx2" ]; then
    say "Building llama.cpp's processor library for AVX2 alone"
    build_avx2 || echo "llama.cpp for AVX2 could not be built"
  fi
}

# Only the library that holds the kernels differs between the two builds of llama.cpp.
build_avx2() (
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$work" "$llama" &&
    tar -xf "$work"/llama_cpp_python-*.tar.gz -C "$work" &&
    cmake -G Ninja -S "$work"/llama_cpp_python-*/vendor/llama.cpp -B "$work/build" \
      -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_AVX2=ON \
      -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=OFF -DLLAMA_BUILD_COMMON=OFF \
      -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF > /dev/null &&
    cmake --build "$work/build" --target ggml-cpu -j "$(nproc)" > /dev/null &&
    cp -a "$("$python" -c 'import llama_cpp; print(llama_cpp.__path__[0])')/lib" "$work/lib" &&
    find "$work/build" -name 'libggml-cpu.so*' -exec cp -a {} "$work/lib" \; &&
    mv "$work/lib" "$avx2"
)

# measure NAME TITLE MODEL-FILE OPTION...: one run into results/peers/NAME.
measure() {
  say "Measuring $1"
  local name options=()
  for name in "${!left_out[@]}"; do options+=(--left-out "$name=${left_out[$name]}"); done
  "$python" experiments/peers/measure.py --program build/release/coppice --threads "$(nproc)" \
    --out "results/peers/$1" --title "$2" --model "$COPPICE_MODELS/$3" "${options[@]}" "${@:4}"
}

peer_options() {  # of those that are installed
  ! has llama_cpp || echo "--peer=llama.cpp=$python,llama_cpp_engine.py"
  ! has openvino_genai || echo "--peer=OpenVINO GenAI=$python,openvino_engine.py"
  ! has "torch, transformers, gguf" || echo "--peer=transformers=$python,transformers_engine.py"
}

smollm2=SmolLM2-135M-Instruct.Q4_1.gguf
qwen=qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
runs=("$@")
[ $# -gt 0 ] || runs=(smollm2 qwen-1.5b smollm2-avx2)

cd "$root"
install_peers
[ "${runs[0]}" != --setup ] || exit 0
options=()
[ -f build/release/CMakeCache.txt ] || options=(-DCOPPICE_TESTS=OFF)
build release coppice "${options[@]}"
mapfile -t everyone < <(peer_options)
for run in "${runs[@]}"; do
  case "$run" in
    smollm2)
      fetch_models smollm2
      measure smollm2 "SmolLM2-135M Q4_1" "$smollm2" "${everyone[@]}" --rounds 6 \
        --seconds-per-engine 45
      ;;
    qwen-1.5b)
      fetch_models qwen-1.5b
      measure qwen-1.5b "Qwen2.5-Coder-1.5B Q4_K_M" "$qwen" "${everyone[@]}" --rounds 4 \
        --tokens 64 --batch-tokens 16 --seconds-per-engine 50
      ;;
    smollm2-avx2)
      if ! has_flag avx512f; then
        echo "smollm2-avx2: this machine has no more than AVX2, so that smollm2 says it all"
      elif [ ! -d "$avx2" ]; then
        echo "smollm2-avx2: left out: llama.cpp could not be built for AVX2"
      else
        fetch_models smollm2
        measure smollm2-avx2 "SmolLM2-135M Q4_1, AVX2 only" "$smollm2" --target avx2 --rounds 6 \
          --peer "llama.cpp=$python,llama_cpp_engine.py,$avx2"
      fi
      ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done
say "Writing the tables"
python3 experiments/peers/report.py results/peers --readme README.md
echo "experiments/peers/run.sh: done; the report is $root/results/peers/report.md"
