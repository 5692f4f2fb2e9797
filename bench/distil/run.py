#!/usr/bin/env python3
"""A student of a quarter of its teacher's size, with the teacher and without, over some seeds: accuracy on Fashion-MNIST's test images
and processor time. See docs/faster-training.md.

    bench/distil/run.py [--build build] [--seeds 5] [--folder /tmp/distil]

One teacher is trained for all (seed 1), unless FOLDER has it already."""
import argparse
import os
import re
import resource
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS = {"alone": ["share=0"], "soft targets, temperature 2": [], "soft targets, temperature 4": ["temperature=4"]}


def run(*command, cwd):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def accuracy(text):
    return 100 * float(re.findall(r"accuracy ([0-9.]+)", text)[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", default="/tmp/distil")
    options = parser.parse_args()
    ftc, ftrun = (os.path.abspath(os.path.join(options.build, "bin", tool)) for tool in ("ftc", "ftrun"))
    os.makedirs(options.folder, exist_ok=True)
    for name in ("net.ft", "teacher.ft", "student.ft"):
        shutil.copy(os.path.join(HERE, name), options.folder)
    if not os.path.exists(os.path.join(options.folder, "teacher.safetensors")):
        text, seconds = run(ftrun, "teacher.ft", "--save", "teacher.safetensors", cwd=options.folder)
        print(f"teacher: {accuracy(text):.1f}, {seconds:.1f} s of processor time", flush=True)
    for name, defines in VARIANTS.items():
        flags = [word for define in defines for word in ("-D", define)]
        run(ftc, "student.ft", *flags, "-o", "student.so", cwd=options.folder)
        results = [run(ftrun, "student.so", "--set", f"train.seed={seed}", cwd=options.folder) for seed in range(1, options.seeds + 1)]
        of = [accuracy(text) for text, _ in results]
        seconds = sorted(s for _, s in results)[len(results) // 2]
        print(f"{name}: {sum(of) / len(of):.1f} ({min(of):.1f}, {max(of):.1f}) [{', '.join(f'{a:.1f}' for a in of)}]; {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
