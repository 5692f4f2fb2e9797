#!/usr/bin/env python3
"""What 8-bit operands cost in quality: examples/gpt_bytes.ft with 2 layers of 64 features, trained for 1000 steps on docs/*.md, every eighth page kept for
validation; f32, bf16, and fp8 with current and with delayed scaling, all products in 8 bits, three seeds. Prints the loss on the validation pages.

    bench/float8.py [STEPS]        FT_BUILD: where ft was built, build/ if not set"""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BIN = os.path.join(os.environ.get("FT_BUILD", os.path.join(ROOT, "build")), "bin")
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
SEEDS = 1, 2, 3
SIZES = "-D", "T=64", "-D", "D=64", "-D", "L=2", "--set", "train.eval.unit=step", "--set", f"train.eval.every={STEPS}"
PRECISIONS = {
    "f32": ["train.precision=f32"],
    "bf16": ["train.precision=bf16"],
    "fp8, current": ["train.precision=fp8"],
    "fp8, delayed, history 1024": ["train.precision=fp8", "train.fp8.scaling=delayed"],
    "fp8, delayed, history 16": ["train.precision=fp8", "train.fp8.scaling=delayed", "train.fp8.history=16"],
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        pages = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))
        for name, chosen in (("valid", pages[::8]), ("train", [page for page in pages if page not in pages[::8]])):
            with open(os.path.join(folder, name + ".txt"), "wb") as out:
                for page in chosen:
                    with open(page, "rb") as text:
                        out.write(text.read())
        for name, settings in PRECISIONS.items():
            losses = []
            artifact, log = os.path.join(folder, "m.so"), os.path.join(folder, "log")
            sets = [item for setting in settings for item in ("--set", setting)]
            subprocess.run([os.path.join(BIN, "ftc"), os.path.join(ROOT, "examples", "gpt_bytes.ft"), "-o", artifact, *SIZES, *sets], check=True)
            for seed in SEEDS:
                subprocess.run([os.path.join(BIN, "ftrun"), artifact, "--data", folder, "--steps", str(STEPS), "--set", f"train.seed={seed}", "--set", "train.epochs=1000",
                                "--log-jsonl", log], check=True, stdout=subprocess.DEVNULL)
                with open(log, encoding="utf-8") as lines:
                    losses.append([line["loss"] for line in map(json.loads, lines) if line.get("eval")][-1])
            print(f"{name:28}", *(f"{loss:.4f}" for loss in losses), f" mean {sum(losses) / len(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
