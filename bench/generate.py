#!/usr/bin/env python3
"""Tokens a second of a GPT whose weights are rounded, by examples/gpt_bytes.ft with a larger width: f32, 8 bits, and 4 bits in groups of 32, on this
machine's CPU. Each round runs all ways in turn; the medians, and the ratio to f32 within a round. Beside them what reading the weights once a token
takes at the rate at which this machine reads memory. Weights are random: what they say is not asked.

    bench/generate.py [--build build] [--rounds 5] [--tokens 100] [--threads 2] [--width 768] [--layers 6]"""
import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# way: train.quantize, bytes of a weight with its part of a scale, flags of ftc
WAYS = {
    "f32": (None, 4, []),
    "8 bits": ("*=w8", 1, []),
    "4 bits, groups of 32": ("*=w4g32", 0.5 + 4 / 32, []),
    "4 bits, rounded anew for each token (--disable=integers)": ("*=w4g32", 0.5 + 4 / 32, ["--disable=integers"]),
}


def read_rate():
    """Bytes a second of one thread that sums 256 MiB."""
    block = numpy.ones(1 << 26, "f4")
    rates = []
    for _ in range(5):
        begin = time.perf_counter()
        block.sum()
        rates.append(block.nbytes / (time.perf_counter() - begin))
    return max(rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=6)
    flags = parser.parse_args()
    ftc, ftrun = (os.path.join(flags.build, "bin", name) for name in ("ftc", "ftrun"))
    model = os.path.join(ROOT, "examples", "gpt_bytes.ft")
    sizes = ["-D", f"D={flags.width}", "-D", f"L={flags.layers}", "-D", "heads=12"]
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "valid"):
            with open(os.path.join(folder, split + ".txt"), "w") as file:
                file.write("the quick brown fox jumps over the lazy dog. " * 400)
        artifacts = {}
        for way, (quantize, _, more) in WAYS.items():
            artifacts[way] = os.path.join(folder, f"{len(artifacts)}.so")
            setting = ["--set", f"train.quantize={quantize}"] if quantize else []
            subprocess.run([ftc, model, *sizes, *setting, *more, "-o", artifacts[way]], check=True)
            subprocess.run([ftrun, artifacts[way], "--data", folder, "--steps", "0", "--save", artifacts[way] + ".safetensors"], check=True, capture_output=True)
        rates = {way: [] for way in WAYS}
        for _ in range(flags.rounds):
            for way, artifact in artifacts.items():
                said = subprocess.run([ftrun, "generate", artifact, "--weights", artifact + ".safetensors", "--prompt", "The ", "--tokens", str(flags.tokens),
                                       "--threads", str(flags.threads)], check=True, capture_output=True, text=True, errors="replace").stderr
                rates[way].append(float(re.search(r"then (\S+) tokens/s", said)[1]))
    rate, layers, head = read_rate(), 12 * flags.width**2 * flags.layers, 4 * 256 * flags.width
    print(f"width {flags.width}, {flags.layers} layers, {flags.threads} threads; one thread reads {rate / 1e9:.1f} GB/s")
    print(f"{'way':58} {'tokens/s':>9} {'of f32':>7} {'MB read':>8} {'by one thread, tokens/s':>24}")
    for way, (_, size, _) in WAYS.items():
        ratio = statistics.median(mine / f32 for mine, f32 in zip(rates[way], rates["f32"]))
        read = layers * size + head
        print(f"{way:58} {statistics.median(rates[way]):9.0f} {ratio:6.2f}x {read / 1e6:8.1f} {rate / read:24.0f}")


if __name__ == "__main__":
    main()
