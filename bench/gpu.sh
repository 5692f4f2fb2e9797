#!/usr/bin/env bash
# ft on a GPU against PyTorch and JAX, for a machine that has CUDA and PyTorch and nothing to build with.
#
#   bench/gpu.sh pack [FILE]      here: everything that is needed, in one archive (default gpu-pack.tar.xz)
#   bench/gpu.sh run [--device cuda|sim] [--seconds S] [--out DIR] [--no-suite]
#                                 there, from the unpacked archive: the numerical suite, then the table
#   bench/gpu.sh dry              here, without a GPU: packs, unpacks, and runs on the simulator, no peers
#
# On the GPU machine:  mkdir p && tar -xJf gpu-pack.tar.xz -C p && p/bench/gpu.sh run --out "$OUT"
# FT_BUILD names the build folder (default build). Results: a table on standard output, gpu.json in --out.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${FT_BUILD:-$root/build}

# name of the example, batch sizes; ResNet-18 at 32x32 and 224x224 in bf16 joins with that precision
models="fashion_mlp:64 fashion_mlp:8192 fashion_cnn:64 resnet_tiny:64"

pack() {
  local archive=${1:-gpu-pack.tar.xz} folder
  folder=$(mktemp -d)
  mkdir -p "$folder"/{bin,lib,artifacts,bench,test/num,examples}
  cp "$build/bin/ftrun" "$folder/bin/" && strip "$folder/bin/ftrun"
  # what the system there may lack; its C library and its driver are its own
  ldd "$build/bin/ftrun" | awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|pthread|rt)\.so/ {print $3}' |
    while read -r library; do cp -L "$library" "$folder/lib/"; done
  for entry in $models; do
    local name=${entry%:*} batch=${entry#*:}
    "$build/bin/ftc" "$root/examples/$name.ft" --set "train.batch=$batch" -o "$folder/artifacts/$name-$batch.ptx"
  done
  cp -r "$root/bench/gpu" "$root/bench/gpu.sh" "$folder/bench/"
  cp "$root/test/support.py" "$folder/test/" && cp "$root"/test/num/ops.py "$folder/test/num/"
  cp "$root"/examples/*.ft "$folder/examples/"
  echo "recording the numerical suite (each case once on the simulator)"
  (cd "$root" && FT_BUILD=$build /usr/bin/python3 bench/gpu/replay.py record "$folder/suite" test/num/ops.py Ops 2>&1 | tail -n 1) ||
    echo "some case fails on the simulator; it is carried all the same"
  tar -C "$folder" -cf - . | xz -T0 -3 >"$archive"
  rm -rf "$folder"
  echo "$archive: $(du -h "$archive" | cut -f1)"
}

run() {
  export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  exec "${PYTHON:-python3}" "$root/bench/gpu/table.py" "$root" "$@"
}

dry() {
  local folder
  folder=$(mktemp -d)
  trap "rm -rf $folder" EXIT
  pack "$folder/pack.tar.xz"
  mkdir "$folder/there" && tar -xJf "$folder/pack.tar.xz" -C "$folder/there"
  "$folder/there/bench/gpu.sh" run --device sim "$@"
}

case ${1:-} in
  pack | run | dry) "$@" ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
