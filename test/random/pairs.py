"""What meets in one kernel? Fixed random programs are compiled as far as kernels, for the CPU and a GPU, and of each kernel's body
is counted which class of operation reads which other, and through which moves (random_pairs.h). test/coverage/unmet.txt
lists what fewer than three of the programs have; what is not in the list and is met by none ends this with exit code 1: the
programs have lost something, or fuse has. Nothing of it depends on the machine that it runs on. The programs are those of the seeds in
test/coverage/met.txt: of 1500 so few that what three or more of the 1500 have is in three of them, and what fewer have is in as many.

    pairs.py [--all] [--write] [--table]      --all: the 1500 programs; --write: both lists anew, of these; --table: for docs/testing.md, of these
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

UNMET = os.path.join(ROOT, "test", "coverage", "unmet.txt")
MET = os.path.join(ROOT, "test", "coverage", "met.txt")
PROGRAMS = 1500
MAKERS = ("load", "cheap", "heavy", "random", "window", "reduce", "product")
READERS = ("cheap", "heavy", "window", "reduce", "product", "store")
MOVES = ("-", "reshape", "transpose", "broadcast", "slice", "pad", "concat", "gather")
MACHINES = {"cpu": "passes:cpu", "gpu": "passes:sm_90a"}
RARE = 3


def meetings(seeds):
    """The meetings of each program, on each machine; what ftc refuses."""
    met, refused, driver = {seed: set() for seed in seeds}, [], Driver()
    for seed in seeds:
        program = generate(seed, cores=seed % 4 == 3)
        for machine, name in MACHINES.items():
            verdict, text, _ = oracles.ask(driver, program, name)
            if verdict != "ok":
                refused.append(f"seed {seed}, {machine}: {verdict}: {text[:300]}")
            met[seed].update(f"{machine} {word}" for word in text.split()[1:])
    driver.stop()
    return met, refused


def chosen(met):
    """Seeds whose programs have each meeting RARE times, or as often as it is; always the one that has most of what is still wanted."""
    wanted = {word: min(count, RARE) for word, count in collections.Counter(word for words in met.values() for word in words).items()}
    left, seeds = dict(met), []
    while any(wanted.values()):
        best = max(left, key=lambda seed: sum(wanted[word] > 0 for word in left[seed]))
        seeds.append(best)
        for word in left.pop(best):
            wanted[word] -= wanted[word] > 0
    return sorted(seeds)


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
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with open(MET, encoding="utf-8") as file:
        seeds = range(PROGRAMS) if options.all or options.write or options.table else [int(line) for line in file]
    of_seed, failures = meetings(seeds)
    met = collections.Counter(word for words in of_seed.values() for word in words)
    everything = [word for machine in MACHINES for word in words(machine)]
    if options.write:
        with open(UNMET, "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word in everything if met[word] < RARE)
        with open(MET, "w", encoding="utf-8") as file:
            file.writelines(f"{seed}\n" for seed in chosen(of_seed))
    if options.table:
        print("\n\n".join(f"{machine}\n\n{table(met, machine)}" for machine in MACHINES))
    with open(UNMET, encoding="utf-8") as file:
        known = set(file.read().splitlines())
    failures += [f"NOT MET: {word}" for word in everything if word not in known and not met[word]]
    print("\n".join([*failures, *(f"met now, may leave the list: {word}" for word in everything if word in known and met[word] >= RARE)]))
    have = sum(bool(met[word]) for word in everything)
    print(f"{have} of {len(everything)} meetings seen in {len(seeds)} programs")
    print(f"{have} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
