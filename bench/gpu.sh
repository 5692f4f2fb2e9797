#!/usr/bin/env bash
# ft on a GPU against PyTorch, JAX and llm.c, for a machine that has CUDA and PyTorch and nothing to build ft with.
#
#   bench/gpu.sh pack              here: everything that is needed, as .gpu/pack.tar.xz (git ignores .gpu)
#   bench/gpu.sh run UNIT…         there: in the checkout that holds .gpu, or in the unpacked archive
#   bench/gpu.sh rehearse [UNIT…]  here, without a GPU: packs small sizes, unpacks, runs on the fake driver
#
# Units, in the order of their worth: smoke (each feature and every model, small, against the simulator; NVIDIA's
# memory checker), suite (values and gradients of ops, models and a GPT in each precision against PyTorch), small (MLP,
# CNN), gpt2-124M, kernels (shares of the copy bandwidth, attention, products), resnet18-32, resnet18-224, gpt2-350M;
# resnet, gpt, all; one case; or rest: what was not done before and fits. About 26 minutes in all; what was found stays
# in the unpacked folder for the next call.
# Options of run: --out DIR (results.md, gpu.json, logs), --seconds S a peer, --minutes M this call, --peers a,b,
# --no-peers.
# LLMC=FOLDER at pack takes llm.c along (a checkout or a git directory), built if nvcc and cuBLAS's headers are here
# (CUBLAS_HOME, CUDNN_HOME, CUDNN_FRONTEND: bench/gpu/llmc.py). FT_BUILD names the build folder (default build);
# FT_REHEARSAL, a folder in which a rehearsal's pack stays for the next one; FT_CASES, the models in it; OUT, results.
#
#   bench/gpu.sh report GPU.json…  the results of one or several machines as Markdown
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${FT_BUILD:-$root/build}

# The system there may lack these; its C library and its driver are its own. Only ftrun may see them:
# Python's packages want the C++ library of their own system.
pack_ftrun() {
  mkdir -p "$1/bin" "$1/lib"
  cp "$build/bin/ftrun" "$1/bin/ftrun.real" && strip "$1/bin/ftrun.real"
  ldd "$build/bin/ftrun" | awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|pthread|rt)\.so/ {print $3}' |
    while read -r library; do cp -L "$library" "$1/lib/"; done
  printf '#!/bin/sh\nhere=$(dirname "$0")\nLD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/ftrun.real" "$@"\n' >"$1/bin/ftrun"
  chmod +x "$1/bin/ftrun"
}

pack_llmc() {
  [ -n "${LLMC:-}" ] || return 0
  mkdir -p "$1/llm.c"
  if [ -f "$LLMC/train_gpt2.cu" ]; then cp -r "$LLMC"/{train_gpt2.cu,llmc} "$1/llm.c/"
  else git -C "$LLMC" archive HEAD train_gpt2.cu llmc | tar -xf - -C "$1/llm.c"; fi
  [ -z "${CUDNN_FRONTEND:-}" ] || cp -r "$CUDNN_FRONTEND" "$1/llm.c/frontend"
  FT_BUILD_SECONDS=1800 /usr/bin/python3 "$root/bench/gpu/llmc.py" build "$1/llm.c"
  rm -rf "$1"/llm.c/{link,cudnn_att.o}
}

pack_into() { # FOLDER [--tiny]
  mkdir -p "$1"/{bench,test/e2e,examples,runtime/device/cuda}
  pack_ftrun "$1"
  pack_llmc "$1"
  cp -r "$root/bench/gpu" "$root/bench/gpu.sh" "$1/bench/"
  rm -rf "$1/bench/gpu/__pycache__"
  cp -r "$root/test/support.py" "$root/test/num" "$1/test/"
  cp -r "$root"/test/e2e/{cuda_abi.py,gpt.py,zoo.py,zoo} "$1/test/e2e/"
  cp "$root"/runtime/device/cuda/cuda_{driver,blas}.{def,h} "$1/runtime/device/cuda/"
  cp "$root"/examples/*.ft "$1/examples/"
  (cd "$root" && FT_BUILD=$build /usr/bin/python3 bench/gpu/prepare.py "$@")
}

pack() {
  local folder
  folder=$(mktemp -d)
  pack_into "$folder"
  mkdir -p "$root/.gpu"
  tar -C "$folder" -cf - . | xz -T0 -3 >"$root/.gpu/pack.tar.xz"
  rm -rf "$folder"
  echo ".gpu/pack.tar.xz: $(du -h "$root/.gpu/pack.tar.xz" | cut -f1)"
}

run() {
  local there=$root sum
  if [ ! -x "$root/bin/ftrun" ]; then
    [ -f "$root/.gpu/pack.tar.xz" ] || { echo "bench/gpu.sh: there is no .gpu/pack.tar.xz; make it with: bench/gpu.sh pack" >&2; exit 1; }
    there=${TMPDIR:-/tmp}/ft-gpu
    sum=$(sha256sum <"$root/.gpu/pack.tar.xz")
    # what an earlier call found lies in it
    [ "$(cat "$there/unpacked" 2>/dev/null)" = "$sum" ] ||
      { rm -rf "$there" && mkdir -p "$there" && tar -xJf "$root/.gpu/pack.tar.xz" -C "$there" && echo "$sum" >"$there/unpacked"; }
  fi
  PYTHONUNBUFFERED=1 exec "${PYTHON:-python3}" "$there/bench/gpu/table.py" "$there" "$@"
}

rehearse() {
  local folder=${FT_REHEARSAL:-}
  if [ -z "$folder" ]; then
    folder=$(mktemp -d)
    trap "rm -rf $folder" EXIT
  fi
  [ -x "$folder/bin/ftrun" ] || pack_into "$folder" --tiny ${FT_CASES:-} "$@"
  export FT_CUDA_LIBRARY=${FT_CUDA_LIBRARY:-$build/fake/libfake_cuda.so} FT_CUBLASLT_LIBRARY=$build/fake/libfake_blas.so
  export FT_FAKE_CUDA_MEMORY=$((128 << 20)) # a quarter of it is copied to and fro for the bandwidth
  PYTHONUNBUFFERED=1 "${PYTHON:-python3}" "$folder/bench/gpu/table.py" "$folder" --tiny --out "${OUT:-$folder/out}" "${@:-all}"
}

case ${1:-} in
  pack | run | rehearse) "$@" ;;
  report) shift && exec "${PYTHON:-python3}" "$root/bench/gpu/summary.py" "$@" ;;
  *) sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
