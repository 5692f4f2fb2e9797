#!/usr/bin/env python3
"""What `statistics = true` changes: faster.ft of docs/faster-training.md on the first 6,000 images of Fashion-MNIST, with averages of the weights and a
constant rate. Accuracy in percent of the weights as they are, of their averages with the running statistics of the training, and of these with statistics
computed anew; means over seeds, the lowest, the highest, and seconds of processor time, on one thread.

    bench/running_statistics.py [--build build] [--seeds 3] [--averages "ema = 0.99" "ema = 0.998" "average = swa(start=0.5)"]"""
import argparse
import json
import os
import resource
import subprocess
import tempfile

from less_work import ROOT, program


def evaluations(ftrun, log, *arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([ftrun, *map(str, arguments), "--threads", "1", "--log-jsonl", log], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log) as file:
        last = [line for line in map(json.loads, file) if line.get("eval") and "loss" in line][-1]
    os.remove(log)
    return last, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--averages", nargs="*", default=["ema = 0.9", "ema = 0.99", "ema = 0.998", "average = swa(start=0.5)"])
    flags = parser.parse_args()
    ftc, ftrun = (os.path.join(flags.build, "bin", tool) for tool in ("ftc", "ftrun"))
    for average in flags.averages:
        with tempfile.TemporaryDirectory() as folder:
            path = lambda name: os.path.join(folder, name)
            with open(path("m.ft"), "w") as file:
                file.write(program("faster.ft", average))
            subprocess.run([ftc, path("m.ft"), "-o", path("m.so")], check=True)
            subprocess.run([ftc, path("m.ft"), "--set", "train.statistics=true", "-o", path("anew.so")], check=True)
            found, seconds = {"as they are": [], "averages": [], "averages, statistics anew": []}, [[], []]
            for seed in range(1, flags.seeds + 1):
                one, time = evaluations(ftrun, path("log"), path("m.so"), "--set", f"train.seed={seed}", "--save-ema", path("ema"))
                seconds[0].append(time)
                two, time = evaluations(ftrun, path("log"), path("anew.so"), "--set", f"train.seed={seed}", "--init", path("ema"), "--save", path("final"))
                seconds[1].append(time)
                for name, value in zip(found, (one["accuracy"], one["ema_accuracy"], two["accuracy"])):
                    found[name].append(100 * value)
            for name, values in found.items():
                print(f"{average}  {name:26} {sum(values) / len(values):.2f} ({min(values):.2f}, {max(values):.2f})", flush=True)
            print(f"{average}  training {sorted(seconds[0])[flags.seeds // 2]:.1f} s, statistics {sorted(seconds[1])[flags.seeds // 2]:.1f} s", flush=True)


if __name__ == "__main__":
    main()
