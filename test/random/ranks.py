"""Random programs on several ranks: do 2 and 3 of them, with one and two parts of a batch each, train and evaluate as one rank with the
whole batch? The interpreter says so of what all passes make (test/unit/passes_ranks.c).
  ranks.py [--seed 0] [--programs 300] [--one SEED]
The last line is `N passed, N failed`; programs that several ranks refuse are neither."""
import argparse
import os
import random
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import torch

import float8_programs
from disguise import samples_axis
from driver import BUILD
from generate import generate

REFUSED = 77  # the exit code of the unit test where the compiler refuses the program
OPTIMIZERS = ["sgd(lr=0.05)", "sgd(lr=0.05, momentum=0.9)", "sgd(lr=0.05, weight_decay=0.1)"]  # adam would show noise where a gradient is 0


def is_of_float8(seed):
    """Products of 8-bit floats, with delayed scaling: of current scaling there is one rank."""
    return seed % 6 == 5


def is_divided(program):
    """Is the gradient of each product's result, on a rank, that of its samples? Of a product of parameters it is a share, of a mean by weights
    (`ignore`) a multiple: then what is largest hangs on how a batch is divided (docs/language.md, Precision)."""
    has_samples = {leaf.name for leaf in program.leaves if leaf.kind == "input"}
    for s in program.statements:
        if has_samples & set(s.args):
            has_samples.add(s.name)
        elif program.scales(s):
            return False
        if "ignore" in s.attrs or s.op.startswith("weighted"):
            return False
    return True


def made(seed):
    """None: rows that are no samples are as many by chance, or PyTorch computes something else."""
    program = float8_programs.generate(seed, samplewise=True) if is_of_float8(seed) else generate(seed, samplewise=True)
    if samples_axis(program) is None or not program.exact:
        return None
    r = random.Random(seed * 31 + 5)
    program.settings = {"optimizer": r.choice(OPTIMIZERS), "precision": "f32"}
    if is_of_float8(seed):
        program.settings["precision"] = f"fp8(scaling=delayed, history={r.choice([1, 2, 3])}, margin={r.choice([0, 0, 1])})"
        if not is_divided(program):
            return None
    if r.random() < 0.3:
        program.settings["clip"] = "norm(0.5)"
    if r.random() < 0.2:
        program.settings["ema"] = 0.9
    program.outputs, program.metrics = [], program.metrics[-1:]  # the unit test holds one
    return program


def check(seed):
    """None: nothing to learn from this seed; else what is wrong, or an empty text."""
    program = made(seed)
    if not program:
        return None
    done = subprocess.run([os.path.join(BUILD, "unit", "unit_passes_ranks"), "-"], input=program.text(), capture_output=True, text=True)
    if done.returncode == REFUSED:
        return None
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else (said or [f"exit code {done.returncode}"])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--one", type=int)
    o = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if o.one is not None:
        program = made(o.one)
        print(program.text() if program else "nothing", check(o.one), sep="\n")
        return 0
    passed = failed = 0
    for seed in range(o.seed, o.seed + o.programs):
        wrong = check(seed)
        passed, failed = passed + (wrong == ""), failed + bool(wrong)
        if wrong:
            print(f"seed {seed}: {wrong} (ranks.py --one {seed})", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
