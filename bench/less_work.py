#!/usr/bin/env python3
"""What the techniques of docs/faster-training.md that leave work out save, and what these, pruning and sharpness cost: the files of the page on the first 6,000 images of
Fashion-MNIST, and examples/gpt_bytes.ft on the pages of docs/. Each way is trained with some seeds; the means of the last evaluation, the lowest and
the highest, and the median of the processor time.

    bench/less_work.py [--build build] [--seeds 3] [WAY...]"""
import argparse
import glob
import json
import os
import re
import resource
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COSINE = "schedule = cosine(warmup=50 steps, final=0.05)"
PRUNE = {
    "magnitude": "magnitude(sparsity=0.8, every=20)",
    "magnitude 90": "magnitude(sparsity=0.9, every=20)",
    "gradient": "gradient(sparsity=0.8, every=20)",
    "movement": "movement(sparsity=0.8, begin=200, every=20)",
    "2:4": 'magnitude(structure="2:4", begin=200)',
    "channel": "magnitude(sparsity=0.5, structure=channel, every=20) on rank >= 2 and not \"head.*\"",
}
FREEZE = {
    "freeze from 0.5 on": 'after(0.5, "stem.*", "block.0.*"RATE)',
    "freeze layer by layer": '(after(0.4, "stem.*"RATE), after(0.5, "block.0.*"RATE), after(0.7, "block.1.*"RATE))',
}
RATES = {"": "", ", rates to 0": ", rate=cosine", ", scaled rates to 0": ", rate=scaled_cosine"}
# way: file, what the recipe says besides
WAYS = {
    "images": ("growing.ft", COSINE),
    "images grow, 0.3 of the steps": ("growing.ft", COSINE + "; grow = resize(S, 14, 20)"),
    "images grow, 0.6 of the steps": ("growing.ft", COSINE + "; grow = resize(S, 14, 20, share=0.6)"),
    "batch": ("faster.ft", COSINE),
    "batch grows, 0.3 of the steps": ("faster.ft", COSINE + "; grow = batch(16, 32)"),
    "plain": ("faster.ft", COSINE),
    "sam": ("faster.ft", COSINE + "; sharpness = sam(rho=0.05)"),
    "sam, every second step": ("faster.ft", COSINE + "; sharpness = sam(rho=0.05, every=2)"),
    "asam": ("faster.ft", COSINE + "; sharpness = asam(rho=0.5)"),
    **{way + words: ("faster.ft", f"{COSINE}; freeze = {freeze.replace('RATE', rate)}") for way, freeze in FREEZE.items() for words, rate in RATES.items()},
    "dense": ("faster.ft", COSINE),
    **{way: ("faster.ft", f"{COSINE}; prune = {prune}") for way, prune in PRUNE.items()},
    "rows": ("gpt_bytes.ft", ""),
    "rows grow, 0.3 of the steps": ("gpt_bytes.ft", "grow = truncate(T, 32, 64)"),
    "rows grow, 0.6 of the steps": ("gpt_bytes.ft", "grow = truncate(T, 32, 64, share=0.6)"),
}


def program(name, recipe):
    if name == "gpt_bytes.ft":
        with open(os.path.join(ROOT, "examples", name)) as file:
            return file.read().replace("train {", f"train {{ {recipe}", 1)
    with open(os.path.join(ROOT, "docs", "faster-training.md")) as file:
        text = re.search(r"// " + re.escape(name) + r"\n(.*?)```", file.read(), re.S).group(1)
    return text.replace("// schedule =", f"{recipe} // schedule =")


def write_text(folder):
    """Nine of ten pages to train on, the others to validate."""
    pages = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))
    for split, keep in (("train", lambda i: i % 10), ("valid", lambda i: not i % 10)):
        with open(os.path.join(folder, split + ".txt"), "w") as out:
            for i, page in enumerate(pages):
                if keep(i):
                    with open(page) as file:
                        out.write(file.read())


def train(build, folder, artifact, data, seed):
    log = os.path.join(folder, "log.jsonl")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([f"{build}/bin/ftrun", artifact, "--data", data, "--set", f"train.seed={seed}", "--log-jsonl", log], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log) as file:
        last = [line for line in map(json.loads, file) if line.get("eval") and "loss" in line][-1]
    os.remove(log)
    value = 100 * last["accuracy"] if "accuracy" in last else last["bits_per_byte"]
    return value, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("ways", nargs="*", default=list(WAYS))
    flags = parser.parse_args()
    for way in flags.ways:
        name, recipe = WAYS[way]
        with tempfile.TemporaryDirectory() as folder:
            source, artifact = os.path.join(folder, "m.ft"), os.path.join(folder, "m.so")
            with open(source, "w") as file:
                file.write(program(name, recipe))
            subprocess.run([f"{flags.build}/bin/ftc", source, "-o", artifact], check=True)
            write_text(folder)
            data = folder if name == "gpt_bytes.ft" else flags.data
            runs = [train(flags.build, folder, artifact, data, seed + 1) for seed in range(flags.seeds)]
        values, seconds = [v for v, _ in runs], sorted(s for _, s in runs)
        digits = 3 if name == "gpt_bytes.ft" else 1
        print(f"{way:30} {sum(values) / len(values):.{digits}f} ({min(values):.{digits}f}, {max(values):.{digits}f}); {seconds[len(seconds) // 2]:.1f} s", flush=True)


if __name__ == "__main__":
    main()
