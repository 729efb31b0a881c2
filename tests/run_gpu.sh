#!/usr/bin/env bash
# Builds and tests the CUDA backend on a machine with a GPU, then measures: results/gpu.
#   bash tests/run_gpu.sh                      SmolLM2 and, where it is there, the Qwen pair
#   bash tests/run_gpu.sh MODEL.gguf [DRAFT.gguf]
# Needs this repository, the CUDA toolkit and a model file ($COPPICE_MODELS names their folder).
# Ends within 9 minutes: what the time does not allow is left out, and said.
set -euo pipefail
source "$(dirname "$0")/../experiments/setup.sh"
trap report_end EXIT

readonly most_seconds=510
readonly out=$root/results/gpu
build=$root/build/gpu
left() { echo $((most_seconds - SECONDS)); }
# within SECONDS COMMAND...: runs it unless the time left is shorter; a failure ends the script.
within() {
  local limit=$1
  shift
  if [ "$(left)" -lt "$limit" ]; then
    echo "left out, $(left) s are left: $*"
    return 0
  fi
  timeout --foreground "$(left)" "$@"
}

[ -n "${CUDACXX:-}" ] || CUDACXX=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
export CUDACXX
[ -x "$CUDACXX" ] || die "no nvcc; install the CUDA toolkit, or name it by CUDACXX"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null ||
  die "no NVIDIA driver, or no GPU"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '.')

model=${1:-}
pair=${1:-}
draft=${2:-}
if [ -z "$model" ]; then
  model=$COPPICE_MODELS/SmolLM2-135M-Instruct.Q4_1.gguf
  [ -f "$model" ] || fetch_models smollm2
  qwen=$COPPICE_MODELS/qwen2.5-coder
  if [ -f "$qwen-1.5b-instruct-q4_k_m.gguf" ] && [ -f "$qwen-0.5b-instruct-q4_k_m.gguf" ]; then
    pair=$qwen-1.5b-instruct-q4_k_m.gguf
    draft=$qwen-0.5b-instruct-q4_k_m.gguf
  fi
fi

say "Building for sm_$capability"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOPPICE_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="$capability-real" --log-level=NOTICE > /dev/null
targets=(coppice make_tiny_model kernel_test attention_test row_invariance_test backend_test)
cmake --build "$build" --target "${targets[@]}" -j "$(nproc)" > "$build/log" 2>&1 ||
  { tail -n 40 "$build/log"; exit 1; }
coppice=$build/coppice

mkdir -p "$out"
say "Testing every kernel on the device"
for test in kernel_test attention_test row_invariance_test backend_test; do
  within 20 "$build/tests/$test" --gtest_brief=1 --gtest_filter='*cuda*'
done
if sanitizer=$(command -v compute-sanitizer || ls "$(dirname "$CUDACXX")/compute-sanitizer" 2> /dev/null); then
  say "Testing under compute-sanitizer"
  within 120 "$sanitizer" --error-exitcode 9 "$build/tests/attention_test" --gtest_brief=1 \
    --gtest_filter='*cuda_exact'
fi

say "Comparing with the reference and the cpu backend"
within 30 "$coppice" verify --model "$model" --backend cuda --method prompt_lookup
for backend in reference cpu cuda; do
  within 10 "$coppice" generate --model "$model" --backend "$backend" --max-new-tokens 32 \
    --prompt "Why is the sky blue?" > "$out/$backend.txt"
done

if [ "$(nvidia-smi --list-gpus | wc -l)" -ge 2 ] && [ "$(left)" -ge 40 ]; then
  say "Sharing a model between two devices"
  "$build/tests/make_tiny_model" "$build/tiny.gguf"
  for method in autoregressive jacobi; do
    timeout --foreground 20 "$coppice" generate --model "$build/tiny.gguf" --backend cuda --ranks 2 \
      --raw --method "$method" --prompt "hello" --max-new-tokens 32 > "$build/$method.txt"
  done
  cmp "$build/autoregressive.txt" "$build/jacobi.txt"
fi

say "Measuring"
within 60 "$coppice" roofline --backend cuda --target exact --model "$model" --rounds 3 --json \
  > "$out/roofline.json"
within 60 "$coppice" roofline --backend cuda --target fast --model "$model" --rounds 3 --json \
  > "$out/roofline-fast.json"
within 90 "$coppice" bench "$root/configs/bench/gpu.toml" --set model.path="$model" \
  --out "$out/bench" --overwrite
if [ -n "$draft" ]; then
  within 90 "$coppice" bench "$root/configs/bench/gpu_pair.toml" --set model.path="$pair" \
    --set model.draft="$draft" --out "$out/pair" --overwrite
fi
echo "tests/run_gpu.sh: all passed; results are in $out"
