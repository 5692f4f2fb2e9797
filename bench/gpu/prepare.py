"""Fills a pack with what needs ftc: artifacts of every case and kernel, those of the smoke test with their data
and the simulator's losses, and the recorded numerical suite.

  prepare.py FOLDER [--tiny] [CASE…]     called by bench/gpu.sh; without a case: all, and all kernels"""
import json
import os
import re
import shutil
import subprocess
import sys

import cases

folder, is_tiny = sys.argv[1], "--tiny" in sys.argv
chosen = [name for name in sys.argv[2:] if name in cases.CASES] or list(cases.CASES)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
build = os.environ["FT_BUILD"]


def call(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def compile_case(name, place, file_name, tiny):
    for target in cases.TARGETS:
        call(os.path.join(build, "bin", "ftc"), os.path.join("examples", cases.CASES[name]["example"] + ".ft"), *cases.flags(name, tiny), "--gpu", target,
             "-o", cases.artifact(place, file_name, target), cwd=root)


def file_name(kernel):
    return re.sub(r"\W+", "-", kernel)


def make_smoke(name):
    """A small artifact, its data, and what the simulator says of it."""
    import data

    place = os.path.join(folder, "smoke", name)
    os.makedirs(place)
    data.make(name, place, True)
    compile_case(name, place, "model", True)
    log = os.path.join(place, "sim.jsonl")
    call(os.path.join(build, "bin", "ftrun"), cases.artifact(place, "model", cases.TARGETS[-1]), *cases.smoke_flags(place), "--device", "sim", "--log-jsonl", log)
    with open(log) as file:
        losses = [json.loads(line)["loss"] for line in file]
    with open(os.path.join(place, "losses.json"), "w") as file:
        json.dump(losses, file)
    shutil.rmtree(os.path.join(place, "runs"), ignore_errors=True)


def record(program, *classes):
    """One of test/num's programs: see replay.py."""
    done = subprocess.run([sys.executable, os.path.join(root, "bench/gpu/replay.py"), "record", os.path.join(folder, "suite"), os.path.join(root, program), *classes],
                          capture_output=True, text=True, env=dict(os.environ, FT_BUILD=build))
    said = done.stdout.strip().splitlines()
    print(f"recorded {program}: {said[-1] if said else done.stderr[-500:]}")


os.makedirs(os.path.join(folder, "artifacts"), exist_ok=True)
for name in chosen:
    make_smoke(name)
    if is_tiny:
        for target in cases.TARGETS:
            shutil.copy(cases.artifact(os.path.join(folder, "smoke", name), "model", target), cases.artifact(os.path.join(folder, "artifacts"), name, target))
    else:
        compile_case(name, os.path.join(folder, "artifacts"), name, False)
for name in cases.kernels(is_tiny):
    path = os.path.join(folder, "artifacts", "kernel-" + file_name(name))
    with open(path + ".ft", "w") as file:
        file.write(cases.kernel_text(name, is_tiny))
    call(os.path.join(build, "bin", "ftc"), path + ".ft", "-o", path + ".ptx")
if not is_tiny:
    record("test/num/ops.py", "Ops")
    record("test/e2e/zoo.py")
print(f"{len(chosen)} cases, {len(cases.kernels(is_tiny))} kernels")
