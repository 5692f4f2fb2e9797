"""Runs random programs, one seed after the other, and makes what fails small: see scripts/soak --help."""
import argparse
import contextlib
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import torch

import oracles
from driver import BUILD, Driver, new_folder
from reduce import reduce

MOST_REDUCED = 20  # failures that a worker makes small in one campaign; the others are listed
MOST_OF_KIND = 3
MOST_OF_HARNESS = 20  # seeds one after the other of which the harness itself fails


def options(arguments):
    parser = argparse.ArgumentParser(prog="scripts/soak", description="Random programs against the interpreter, PyTorch and themselves.")
    parser.add_argument("--minutes", type=float, default=10, help="how long (default 10)")
    parser.add_argument("--programs", type=int, help="so many programs instead of a time")
    parser.add_argument("--seed", type=int, help="the first seed, in place of going on where the last campaign stopped")
    parser.add_argument("--sim", action="store_true", help="PTX, in the simulator, instead of the CPU")
    parser.add_argument("--float8", action="store_true", help="programs with products of 8-bit floats, and some of whole numbers (float8_programs.py)")
    parser.add_argument("--quick", action="store_true", help="CPU: LLVM does little, but for every eighth program: twice as many in a time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="programs at a time (default: the cores)")
    parser.add_argument("--folder", default=os.path.join(BUILD, "soak"), help="state and failures (default build/soak)")
    parser.add_argument("--no-reduce", action="store_true", help="only list what fails")
    parser.add_argument("--one", type=int, metavar="SEED", help="only this program: print it and its verdict")
    return parser.parse_args(arguments)


HARNESS = ("harness", None, None)  # in place of a form
worker = None


def start_worker(choices, folder=None, do_reduce=False, scratch=None):
    """scratch: a folder for the driver's, which the campaign removes: it ends its workers by a signal."""
    global worker
    torch.set_num_threads(1)
    os.nice(5)
    worker = {"driver": Driver(folder=scratch and tempfile.mkdtemp(dir=scratch)), "choices": choices, "folder": folder, "reduce": do_reduce, "reduced": 0, "kinds": {}}


def run_seed(job):
    """(seed, statements, [(form, verdict, text, what was saved of it)])"""
    seed, gpu, is_quick, float8 = job
    program, answers = None, []
    try:
        program = oracles.made(seed, gpu, float8)
        for form in oracles.forms(program, gpu, worker["choices"]):
            if is_quick and seed % 8 and not gpu:
                form = ("quick:" + form[0], *form[1:])
            verdict, text = oracles.check(worker["driver"], program, form)
            answers.append((form, verdict, text, None if verdict == "ok" else keep(program, form, verdict, text)))
    except Exception:  # of the generator or an oracle: a failure of this seed, and the next one follows
        answers.append((HARNESS, "fail", traceback.format_exc(), None))
    return seed, len(program.statements) if program else 0, answers


def kind_of(text):
    """Of two failures with one cause this is mostly the same."""
    return re.sub(r"[-+]?\d[\d.e+-]*|'[^']*'", "#", text)[:60]


def is_alike(verdict, text, other):
    """Does it still fail in the same way?"""
    marks = ("the interpreter says", "PyTorch", "other bits")
    if verdict != other[0]:
        return False
    mark = next((m for m in marks if m in text), None)
    return mark in other[1] if mark else kind_of(text) == kind_of(other[1])


def form_text(form):
    machine, without, otherwise = form
    return machine + (f" without {without}" if without else "") + (f" {otherwise}" if otherwise else "")


def save(folder, seed, form, program, text, original):
    machine, without, otherwise = form
    name = f"{seed}-{machine.replace(':', '-').replace('/', '-')}" + (f"-{without}" if without else "") + ("-" + otherwise.split()[-1] if otherwise else "")
    if otherwise:
        program, original = (oracles.OTHERWISE[otherwise](p, seed) for p in (program, original))
    folder = os.path.join(folder, "failures", name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "program.ft"), "w") as file:
        file.write(program.text())
    with open(os.path.join(folder, "original.ft"), "w") as file:
        file.write(original.text())
    program.write_values(os.path.join(folder, "values"))
    original.write_values(os.path.join(folder, "original.values"))
    with open(os.path.join(folder, "report"), "w") as file:
        file.write(f"seed {seed}, {form_text(form)}\n{text}\n\n"
                   f"again: scripts/soak --one {seed}{'' if machine.endswith('cpu') else ' --sim'}{' --float8' if original.has_float8 else ''}\n"
                   f"build/unit/random_program {folder}/program.ft {folder}/values {machine} {without or '-'}\n")
    return folder


def keep(program, form, verdict, text):
    """Makes what failed small and saves it; the folder and the small program's text."""
    kind = kind_of(verdict + text)
    worker["kinds"][kind] = worker["kinds"].get(kind, 0) + 1
    if worker["reduced"] >= MOST_REDUCED or worker["kinds"][kind] > MOST_OF_KIND:
        return None
    worker["reduced"] += 1
    driver, small, pytorch, was = worker["driver"], program, "PyTorch" in text, text
    if worker["reduce"]:
        small = reduce(program, lambda q: is_alike(verdict, was, oracles.check(driver, q, form, pytorch)))
        text = oracles.check(driver, small, form, pytorch)[1] + f"\nbefore it was made small: {was}"
    return save(worker["folder"], program.seed, form, small, f"{verdict}: {text}", program), small.text()


class State:
    """What has run so far, on disk: a campaign goes on where it was stopped."""

    def __init__(self, folder, gpu, float8=False):
        self.path = os.path.join(folder, ("state-sim" if gpu else "state-cpu") + ("-float8" if float8 else "") + ".json")
        os.makedirs(folder, exist_ok=True)
        self.data = {"next": 0, "programs": 0, "statements": 0, "verdicts": {}, "failures": [], "worst": 0, "seconds": 0, "seen": {}}
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.data.update(json.load(file))

    def write(self):
        beside = self.path + ".tmp"
        with open(beside, "w") as file:
            json.dump(self.data, file, indent=1)
        os.replace(beside, self.path)

    def count(self, seed, statements, answers):
        data = self.data
        data["programs"] += 1
        data["statements"] += statements
        data["next"] = max(data["next"], seed + 1)
        for form, verdict, text, _ in answers:
            data["verdicts"][verdict] = data["verdicts"].get(verdict, 0) + 1
            if form[2]:
                data["seen"][form[2]] = data["seen"].get(form[2], 0) + 1
            if verdict == "ok":
                worst, *seen = text.split()
                data["worst"] = max(data["worst"], float(worst))
                for word in seen:
                    data["seen"][word] = data["seen"].get(word, 0) + 1
            else:
                data["failures"].append([seed, form_text(form), verdict, text[:300]])


def without_effect(seen):
    """What was left out often enough and never changed the code: it wants programs to which it matters."""
    names = sorted({word.split(":")[0] for word in seen if ":" in word})
    return [f"{name} ({seen.get(name + ':same', 0)} times)" for name in names if not seen.get(name + ":other") and seen.get(name + ":same", 0) >= 10]


def seeds(first, o, end, room, over):
    """No more of them at a time than are worked on soon."""
    seed = first
    while (time.time() < end) if o.programs is None else (seed < first + o.programs):
        room.acquire()
        if over.is_set():
            return
        yield seed, o.sim, o.quick, o.float8
        seed += 1


class Stopped(Exception):
    pass


def run_seeds(o, state, first, end):
    """What run_seed says of each seed, in their order, and is counted. A harness that fails of many seeds in a row (its folder is gone,
    the disk is full, there is no build) says nothing of these programs: they do not count as run, and Stopped says why."""
    room, over, held = threading.Semaphore(4 * o.jobs), threading.Event(), []
    with scratch_folder() as scratch, multiprocessing.Pool(o.jobs, start_worker, (oracles.choices(), o.folder, not o.no_reduce, scratch)) as pool:
        try:
            for result in pool.imap(run_seed, seeds(first, o, end, room, over)):
                room.release()
                held.append(result)
                is_broken = any(form == HARNESS for form, *_ in result[2])
                if is_broken and len(held) == MOST_OF_HARNESS:
                    why = result[2][-1][2].strip().splitlines()[-1]
                    raise Stopped(f"the harness itself has failed of {len(held)} programs in a row, from seed {held[0][0]} on, which do not "
                                  f"count: {why}")
                if not is_broken:
                    yield from (counted(state, *r) for r in held)
                    held = []
            yield from (counted(state, *r) for r in held)
        finally:  # the pool waits for the thread that asks for seeds
            over.set()
            room.release()


@contextlib.contextmanager
def scratch_folder():
    folder = new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def counted(state, seed, statements, answers):
    state.count(seed, statements, answers)
    if state.data["programs"] % 20 == 0:
        state.write()
    return seed, answers


def one(o):
    start_worker(oracles.choices())
    program = oracles.made(o.one, o.sim, o.float8)
    print(program.text())
    for form in oracles.forms(program, o.sim, worker["choices"]):
        print(form_text(form), *oracles.check(worker["driver"], program, form), sep="\t")
    worker["driver"].stop()


def main(arguments):
    o = options(arguments)
    if o.one is not None:
        return one(o)
    state = State(o.folder, o.sim, o.float8)
    first = state.data["next"] if o.seed is None else o.seed
    begun, bad = time.time(), 0
    try:
        for seed, answers in run_seeds(o, state, first, begun + 60 * o.minutes):
            for form, verdict, text, saved in answers:
                if verdict != "ok":
                    bad += 1
                    print(f"seed {seed} {form_text(form)}: {verdict}: {text[:300]}", flush=True)
                    if saved:
                        print(f"  {saved[0]}\n{saved[1]}", flush=True)
        state.data["seconds"] += time.time() - begun
        state.write()
    except (Stopped, OSError) as why:
        with contextlib.suppress(OSError):
            state.write()
        print(f"scripts/soak: {why}", flush=True)
        return 3
    data = state.data
    took = time.time() - begun
    ran = max(data["next"] - first, 0)
    print(f"seeds {first} to {data['next'] - 1} in {took:.0f} s; in all {data['programs']} programs, verdicts {data['verdicts']}, "
          f"largest error {data['worst']:.2f} of what rounding allows")
    if without_effect(data["seen"]):
        print(f"left out without any effect: {', '.join(without_effect(data['seen']))}")
    print(f"{sum('>' in word for word in data['seen'])} kinds of meetings in one kernel (pairs.py)")
    print(f"{ran - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
