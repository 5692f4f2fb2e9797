#!/usr/bin/python3
"""What pruning costs in accuracy: the network of docs/faster-training.md on the first 6,000 images of Fashion-MNIST, dense and pruned, over
several seeds. Prints a table of accuracies in percent: mean, lowest and highest.

    bench/pruning.py --build build [--seeds 5] [--data /usr/share/datasets/fashion-mnist] [WAY ...]"""
import argparse
import json
import os
import re
import subprocess
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
WAYS = {
    "dense": "none",
    "magnitude": "magnitude(sparsity=0.8, every=20)",
    "magnitude 90": "magnitude(sparsity=0.9, every=20)",
    "gradient": "gradient(sparsity=0.8, every=20)",
    "movement": "movement(sparsity=0.8, begin=200, every=20)",
    "2:4": 'magnitude(structure="2:4", begin=200)',
    "channel": "magnitude(sparsity=0.5, structure=channel, every=20) on rank >= 2 and not \"head.*\"",
}


def program(prune):
    """The file faster.ft of the page, with a schedule and pruning."""
    with open(os.path.join(ROOT, "docs", "faster-training.md")) as f:
        text = re.search(r"// faster\.ft\n(.*?)```", f.read(), re.S).group(1)
    return text.replace("// schedule =", f"prune = {prune}; schedule =")


def accuracy(build, folder, artifact, data, seed):
    log = os.path.join(folder, "log.jsonl")
    subprocess.run([f"{build}/bin/ftrun", artifact, "--data", data, "--set", f"train.seed={seed}", "--log-jsonl", log], check=True, capture_output=True)
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    os.remove(log)
    return 100 * [line["accuracy"] for line in lines if line.get("eval") and "accuracy" in line][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("ways", nargs="*", default=list(WAYS))
    flags = parser.parse_args()
    for way in flags.ways:
        with tempfile.TemporaryDirectory() as folder:
            source, artifact = os.path.join(folder, "m.ft"), os.path.join(folder, "m.so")
            with open(source, "w") as f:
                f.write(program(WAYS[way]))
            subprocess.run([f"{flags.build}/bin/ftc", source, "-o", artifact], check=True)
            all_of = [accuracy(flags.build, folder, artifact, flags.data, seed + 1) for seed in range(flags.seeds)]
        print(f"{way:14} {sum(all_of) / len(all_of):.1f} ({min(all_of):.1f}, {max(all_of):.1f})", flush=True)


if __name__ == "__main__":
    main()
