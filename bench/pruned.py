#!/usr/bin/env python3
"""What pruning makes of examples/fashion_cnn.ft: accuracy and size with four fifths of the weights 0, and with half of the channels taken out by
`ftrun shrink`, over some seeds, in trainings of some steps on one thread; and the rate of the smaller network against the dense one, batch 1 and 64, in ft's own prediction (ft.h) and in the
library of `ftrun deploy`, one thread each, in turns in one process. Needs numpy and gcc.

    bench/pruned.py [--build build] [--seeds 5] [--steps 700] [--rounds 11] [--folder DIR]

Weights that DIR has already are not trained again."""
import argparse
import ctypes
import gzip
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = "/usr/share/datasets/fashion-mnist"
PRUNE = {
    "dense": "",
    "longer": "",  # dense, as many steps as with half of the channels
    "weights": "prune = magnitude(sparsity=0.8, scope=global, begin=150, every=20)",
    "two of four": 'prune = magnitude(structure="2:4", begin=150)',
    "channels": "prune = magnitude(sparsity=0.5, structure=channel, begin=100, end=300, every=10)",
}
MORE = 115  # steps of the smaller network, in percent of those of the dense one
BATCHES = {1: 400, 64: 20}  # calls in a round


def program(way):
    with open(os.path.join(ROOT, "examples", "fashion_cnn.ft")) as file:
        return file.read().replace("train {", f"train {{ {PRUNE[way]}", 1)


class Tools:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def seconds(self):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def run(self, tool, *arguments):
        done = subprocess.run([os.path.join(self.build, "bin", tool), *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return done.stdout

    def accuracy(self, model, weights):
        return 100 * float(re.findall(r"accuracy ([0-9.]+)", self.run("ftrun", "eval", model, "--weights", weights, "--threads", 1))[-1])


def train(tools, model, weights, *flags):
    """Seconds of processor time."""
    before = tools.seconds()
    if not os.path.exists(weights):
        tools.run("ftrun", model, "--threads", 1, "--save", weights + ".part", *flags)
        os.rename(weights + ".part", weights)
    return tools.seconds() - before


def one(tools, way, seed, steps):
    """Accuracy, bytes of the weights, seconds. With half of the channels: half of the steps in which these go, then more steps of the smaller network. The
    rate begins to fall once: the first run is the front of a longer one, and the second begins without a warmup."""
    model, weights = tools.path(f"{way}.ft"), tools.path(f"{way}-{seed}.safetensors")
    small, begun, left = tools.path(f"small-{seed}.ft"), tools.path(f"small-{seed}.safetensors"), tools.path(f"left-{seed}.safetensors")
    with open(model, "w") as file:
        file.write(program(way))
    is_smaller = way == "channels"
    whole = steps // 2 + MORE * steps // 100
    stops = ["--stop-at", steps // 2] if is_smaller else []
    seconds = train(tools, model, weights, "--steps", whole if is_smaller or way == "longer" else steps, *stops, "--set", f"train.seed={seed}")
    if is_smaller:
        before = tools.seconds()
        tools.run("ftrun", "shrink", model, "--weights", weights, "-o", small)
        seconds += tools.seconds() - before
        seconds += train(tools, small, left, "--init", begun, "--set", "train.prune=none", "--set", "train.schedule.warmup=0", "--steps", MORE * steps // 100, "--set", f"train.seed={seed}")
        model, weights = small, left
    return tools.accuracy(model, weights), os.path.getsize(weights), seconds


def accuracies(tools, seeds, steps):
    found = {way: [one(tools, way, seed, steps) for seed in range(1, seeds + 1)] for way in PRUNE}
    dense = [a for a, _, _ in found["dense"]]
    for way, results in found.items():
        values, sizes, seconds = zip(*results)
        lost = [a - b for a, b in zip(dense, values)]
        print(f"{way:9} accuracy {statistics.mean(values):.2f} ({min(values):.2f}, {max(values):.2f}), lost {statistics.mean(lost):.2f} "
              f"({min(lost):.2f}, {max(lost):.2f}), {sizes[0]:,} bytes, {statistics.median(seconds):.1f} s of processor time", flush=True)


# ── rates ──
class Predicting:
    """ftrun's own inference, through ft.h."""

    library = None

    def __init__(self, tools, name, batch):
        if not Predicting.library:
            libraries = [os.path.join(tools.build, f"libft_{part}.a") for part in ("runtime", "plan", "type", "base")]
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", os.path.join(ROOT, "bench", "integers", "rates.c"), f"-I{ROOT}", *libraries, "-lz", "-lzstd",
                            "-ljansson", "-lpcre2-8", "-lpthread", "-ldl", "-lm", "-o", tools.path("rates.so")], check=True)
            Predicting.library = ctypes.CDLL(tools.path("rates.so"))
            self.library.rates_open.restype = ctypes.c_void_p
            self.library.rates_predict.restype = ctypes.c_double
        artifact = tools.path(f"{name}-{batch}.so")
        tools.run("ftc", tools.path(f"{name}.ft"), "--set", f"train.batch={batch}", "--set", "train.prune=none", "-o", artifact)
        self.logits = numpy.zeros((batch, 10), "f4")
        self.model = self.library.rates_open(artifact.encode(), tools.path(f"{name}.safetensors").encode())
        if not self.model:
            raise SystemExit(f"{artifact} cannot be opened")

    def seconds(self, images, calls):
        taken = self.library.rates_predict(ctypes.c_void_p(self.model), ctypes.c_void_p(images.ctypes.data), calls, ctypes.c_void_p(self.logits.ctypes.data),
                                           ctypes.c_size_t(self.logits.nbytes))
        if taken < 0:
            raise SystemExit("ft_predict failed")
        return taken


class Deployed:
    """The library of ftrun deploy; a call from Python costs it one or two microseconds."""

    def __init__(self, tools, name, batch):
        library = tools.path(f"{name}_{batch}_library.so")
        tools.run("ftrun", "deploy", tools.path(f"{name}.ft"), "--weights", tools.path(f"{name}.safetensors"), "-o", library, "--set", f"train.batch={batch}")
        with open(library.replace(".so", ".h")) as file:
            bytes_ = int(re.search(r"CNN_WORKSPACE (\d+)", file.read())[1])
        self.memory = numpy.zeros(bytes_ + 64, "u1")
        self.workspace = ctypes.c_void_p((self.memory.ctypes.data + 63) // 64 * 64)
        self.bytes = ctypes.c_size_t(bytes_)
        self.batch = ctypes.c_int64(batch)
        self.logits = numpy.zeros((batch, 10), "f4")
        self.outputs = (ctypes.c_void_p * 1)(self.logits.ctypes.data)
        self.call = ctypes.CDLL(library).cnn_run

    def seconds(self, images, calls):
        inputs = (ctypes.c_void_p * 2)(images.ctypes.data, None)
        start = time.perf_counter()
        for _ in range(calls):
            if self.call(inputs, self.outputs, self.batch, self.workspace, self.bytes):
                raise SystemExit("the library refuses its arguments")
        return time.perf_counter() - start


def rates(tools, rounds):
    with gzip.open(os.path.join(DATA, "t10k-images-idx3-ubyte.gz")) as file:
        images = numpy.frombuffer(file.read(), "u1", offset=16).reshape(-1, 28, 28)
    for name, model, weights in (("big", "dense.ft", "dense-1"), ("small", "small-1.ft", "left-1")):
        for of, to in ((model, f"{name}.ft"), (f"{weights}.safetensors", f"{name}.safetensors")):
            if not os.path.exists(tools.path(to)):
                os.symlink(tools.path(of), tools.path(to))
    for kind in (Predicting, Deployed):
        for batch, calls in BATCHES.items():
            big, small = kind(tools, "big", batch), kind(tools, "small", batch)
            some = numpy.ascontiguousarray(images[:batch])
            for model in (big, small):
                model.seconds(some, calls)
            pairs = [(big.seconds(some, calls), small.seconds(some, calls)) for _ in range(rounds)]
            # both say the same of the images, but for rounding and what pruning changed: no network is compared with nothing
            assert (big.logits.argmax(1) == small.logits.argmax(1)).mean() > 0.5
            ratios = [a / b for a, b in pairs]
            each = [batch * calls / statistics.median(times) for times in zip(*pairs)]
            print(f"{kind.__name__:10} batch {batch:2}: dense {each[0]:,.0f} images/s, half of the channels {each[1]:,.0f}, ratio {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f}, {max(ratios):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--folder")
    parser.add_argument("--rates-only", action="store_true", help="after a run with the same --folder")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(flags.folder or temporary)
        os.makedirs(folder, exist_ok=True)
        tools = Tools(os.path.abspath(flags.build), folder)
        if not flags.rates_only:
            accuracies(tools, flags.seeds, flags.steps)
        rates(tools, flags.rounds)


if __name__ == "__main__":
    main()
