#!/usr/bin/env python3
"""Lottery tickets (Frankle and Carbin 2019) on Fashion-MNIST: a network of 784-300-100-10 is pruned round by round by `ftrun lottery`, by half of
its weights each time. Each ticket is trained from its weights of an early step, beside three others of the same sparsity: random places with those
weights (`--random`), the ticket's places with a new initialisation, and random places with it. Accuracy at the end, means over seeds with the lowest
and highest. Needs numpy.

    bench/lottery.py [--build build] [--seeds 3] [--rounds 6] [--rewind 0] [--folder DIR]

Rounds that DIR has already are not trained again."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test"))
import support  # noqa: E402

NET = """
model Net(image: u8[B, H=28, W=28], label: i32[B]) {
  x = flatten((f32(image) / 255 - 0.2860) / 0.3530, from=1)
  x = relu(Linear(300, name="fc1")(x))
  x = relu(Linear(100, name="fc2")(x))
  logits = Linear(10, name="fc3")(x)
  loss = mean(cross_entropy(logits, label))
  metric accuracy = mean(argmax(logits, axis=-1) == label)
}
data Fashion {
  train = idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", limit=20000)
  valid = idx("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
  shuffle = true
}
train { batch = 60; epochs = 4; optimizer = adam(lr=1.2e-3); eval every 4 epoch; log { console; every = 10000 steps } }
"""
WEIGHTS = ("fc1.weight", "fc2.weight", "fc3.weight")


class Runs:
    def __init__(self, build, folder):
        self.ftrun, self.folder = os.path.join(build, "bin", "ftrun"), folder
        self.net = self.path("net.ft")
        with open(self.net, "w") as file:
            file.write(NET)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def run(self, *arguments):
        done = subprocess.run([self.ftrun, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)

    def accuracy(self, log):
        with open(log) as file:
            found = [line["accuracy"] for line in map(json.loads, file) if "eval" in line]
        return 100 * found[-1]

    def tickets(self, seed, rounds, rewind):
        folder = self.path(f"seed-{seed}")
        if not os.path.exists(folder):
            self.run("lottery", self.net, "--rounds", rounds, "--share", "0.5", "--rewind", rewind, "--random", "--seed", seed, "-o", folder + ".part", "--threads", 1,
                     "--set", f"train.seed={seed}")
            os.rename(folder + ".part", folder)
        return folder

    def new_start(self, folder, ticket, name, seed):
        """The accuracy of a training from a new initialisation, with the places of this ticket."""
        log, start, masked = (os.path.join(folder, f"{name}.{kind}") for kind in ("jsonl", "start.safetensors", "masked.safetensors"))
        if not os.path.exists(log):
            self.run(self.net, "--steps", 0, "--set", f"train.seed={1000 + seed}", "--save", start)
            tensors, of = support.read_safetensors(start), support.read_safetensors(ticket)
            for weight in WEIGHTS:
                tensors[weight] = numpy.where(of["@prune.mask." + weight] != 0, tensors[weight], 0).astype("f4")
            support.write_safetensors(masked, tensors)
            self.run(self.net, "--set", "train.prune=zeros", "--set", f"train.seed={seed}", "--init", masked, "--threads", 1, "--log-jsonl", log + ".part")
            os.rename(log + ".part", log)
        return self.accuracy(log)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rewind", type=int, default=0)
    parser.add_argument("--folder")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(flags.folder or temporary)
        os.makedirs(folder, exist_ok=True)
        runs = Runs(os.path.abspath(flags.build), folder)
        columns = {"left, %": [], "ticket": [], "random places": [], "new start": [], "random places, new start": []}
        table = [{name: [] for name in columns} for _ in range(flags.rounds + 1)]
        for seed in range(1, flags.seeds + 1):
            at = runs.tickets(seed, flags.rounds, flags.rewind)
            table[0]["ticket"].append(runs.accuracy(os.path.join(at, "round-0.jsonl")))
            for i in range(1, flags.rounds + 1):
                ticket, other = (os.path.join(at, f"{kind}-{i}.ticket.safetensors") for kind in ("round", "random"))
                mask = support.read_safetensors(ticket)
                alive = numpy.concatenate([mask["@prune.mask." + name].ravel() for name in WEIGHTS])
                table[i]["left, %"].append(100 * float((alive != 0).mean()))
                table[i]["ticket"].append(runs.accuracy(os.path.join(at, f"round-{i}.jsonl")))
                table[i]["random places"].append(runs.accuracy(os.path.join(at, f"random-{i}.jsonl")))
                table[i]["new start"].append(runs.new_start(at, ticket, f"new-{i}", seed))
                table[i]["random places, new start"].append(runs.new_start(at, other, f"new-random-{i}", seed))
        for i, row in enumerate(table):
            print(f"round {i}: " + "; ".join(f"{name} {statistics.mean(v):.2f} ({min(v):.2f}, {max(v):.2f})" for name, v in row.items() if v), flush=True)


if __name__ == "__main__":
    main()
