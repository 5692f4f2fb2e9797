"""What meets in one kernel? Fixed random programs are compiled as far as kernels, for the CPU and a GPU, and of each kernel's body
is counted which class of operation reads which other, and through which moves (random_pairs.h). test/coverage/unmet.txt
lists what fewer than three of the programs have; what is not in the list and is met by none ends this with exit code 1: the
programs have lost something, or fuse has. Nothing of it depends on the machine that it runs on.

    pairs.py [--programs N] [--write] [--table]      --write: the list anew; --table: for docs/testing.md
The last line is `N passed, N failed`."""
import argparse
import collections
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import torch

import oracles
from driver import ROOT, Driver
from generate import generate

LIST = os.path.join(ROOT, "test", "coverage", "unmet.txt")
MAKERS = ("load", "cheap", "heavy", "random", "window", "reduce", "product")
READERS = ("cheap", "heavy", "window", "reduce", "product", "store")
MOVES = ("-", "reshape", "transpose", "broadcast", "slice", "pad", "concat", "gather")
MACHINES = {"cpu": "passes:cpu", "gpu": "passes:sm_90a"}
RARE = 3


def meetings(programs):
    """How many programs have each meeting, on each machine; what ftc refuses."""
    met, refused, driver = collections.Counter(), [], Driver()
    for seed in range(programs):
        program = generate(seed, cores=seed % 4 == 3)
        for machine, name in MACHINES.items():
            verdict, text, _ = oracles.ask(driver, program, name)
            if verdict != "ok":
                refused.append(f"seed {seed}, {machine}: {verdict}: {text[:300]}")
            met.update(f"{machine} {word}" for word in text.split()[1:])
    driver.stop()
    return met, refused


def words(machine):
    return [f"{machine} {maker}>{move}>{reader}" for maker in MAKERS for move in MOVES for reader in READERS]


def table(met, machine):
    """Rows: who made the value, and the moves; columns: who reads it. How many programs have it."""
    lines = ["| | " + " | ".join(READERS) + " |", "|---|" + "---|" * len(READERS)]
    for maker in MAKERS:
        for move in MOVES:
            counts = [met[f"{machine} {maker}>{move}>{reader}"] for reader in READERS]
            if any(counts):
                lines.append(f"| {maker}{'' if move == '-' else ', ' + move} | " + " | ".join(str(n or "") for n in counts) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1500)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    met, failures = meetings(options.programs)
    everything = [word for machine in MACHINES for word in words(machine)]
    if options.write:
        with open(LIST, "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word in everything if met[word] < RARE)
    if options.table:
        print("\n\n".join(f"{machine}\n\n{table(met, machine)}" for machine in MACHINES))
    with open(LIST, encoding="utf-8") as file:
        known = set(file.read().splitlines())
    failures += [f"NOT MET: {word}" for word in everything if word not in known and not met[word]]
    print("\n".join([*failures, *(f"met now, may leave the list: {word}" for word in everything if word in known and met[word] >= RARE)]))
    have = sum(bool(met[word]) for word in everything)
    print(f"{have} of {len(everything)} meetings seen in {options.programs} programs")
    print(f"{have} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
