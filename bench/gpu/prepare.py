"""Fills a pack with what needs ftc: artifacts of every case, kernel and probe, the smoke test's data with the
simulator's losses, and the recorded numerical suite.

  prepare.py FOLDER [--tiny] [CASE…]     called by bench/gpu.sh; without a case: all, and all kernels"""
import concurrent.futures
import datetime
import functools
import json
import os
import re
import shutil
import subprocess
import sys

import cases
import data
import numpy

folder, is_tiny = sys.argv[1], "--tiny" in sys.argv
chosen = [name for name in sys.argv[2:] if name in cases.CASES] or list(cases.CASES)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
build = os.environ["FT_BUILD"]
artifacts = os.path.join(folder, "artifacts")


def call(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=root)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return done


def ftc(*words):
    """False if this ftc has no such switch; other errors end it."""
    done = call(os.path.join(build, "bin", "ftc"), *words, check=False)
    if done.returncode != 0 and not ("--disable" in str(words) and "there is no pass" in done.stderr):
        sys.exit(f"ftc {' '.join(map(str, words))}: {done.stderr}")
    return done.returncode == 0


def compile_case(name, place, file_name, tiny):
    """Every variant that this ftc knows how to make, but no spare that is another one's twin."""
    source, seen = os.path.join("examples", cases.CASES[name]["example"] + ".ft"), set()
    for variant in cases.variants_of(name):
        artifact = cases.artifact(place, file_name, variant)
        if tiny and variant not in ("sm_90a", "sm_80") or not ftc(source, *cases.flags(name, tiny, variant), "-o", artifact):
            continue
        with open(artifact) as file:
            text = file.read()
        if text in seen and cases.VARIANTS[variant].get("is_spare"):
            os.unlink(artifact)
        seen.add(text)


def simulate(artifact, place, flags):
    """The simulator's losses, as losses.json."""
    log = os.path.join(place, "sim.jsonl")
    call(os.path.join(build, "bin", "ftrun"), artifact, *flags, "--device", "sim", "--log-jsonl", log)
    with open(log) as file:
        losses = [line["loss"] for line in map(json.loads, file) if "loss" in line]
    with open(os.path.join(place, "losses.json"), "w") as file:
        json.dump(losses, file)
    shutil.rmtree(os.path.join(place, "runs"), ignore_errors=True)


def make_case(name):
    """A small artifact with its data and losses for the smoke test, and the large ones."""
    place = os.path.join(folder, "smoke", name)
    os.makedirs(place)
    data.make(name, place, True)
    compile_case(name, place, "model", True)
    simulate(cases.artifact(place, "model", "sm_80"), place, cases.smoke_flags(place))
    if not is_tiny:
        return compile_case(name, artifacts, name, False)
    for variant in ("sm_90a", "sm_80"):
        shutil.copy(cases.artifact(place, "model", variant), cases.artifact(artifacts, name, variant))


def make_probe(name):
    probe, place = cases.PROBES[name], os.path.join(folder, "probes", file_name(name))
    os.makedirs(place)
    random = numpy.random.default_rng(1)
    for file in ("x", "t"):
        numpy.save(os.path.join(place, file + ".npy"), random.standard_normal((2 * probe["batch"], *probe.get("shape", (256,)))).astype(numpy.float32))
    with open(os.path.join(place, "model.ft"), "w") as file:
        file.write(cases.probe_text(name))
    artifact, disable = os.path.join(place, "model.ptx"), probe.get("disable", "")
    left_out = [switch for switch in disable.split(",") if switch and knows(switch)]
    words = [os.path.join(place, "model.ft"), "--gpu", probe["gpu"], "-o", artifact]
    ftc(*words, *([f"--disable={','.join(left_out)}"] if left_out else []))
    with open(artifact) as file:
        if probe.get("needs") and not re.search(r"^[^/\n].*" + re.escape(probe["needs"]), file.read(), re.M):
            return shutil.rmtree(place)
    simulate(artifact, place, cases.smoke_flags(place, False))


@functools.cache
def knows(switch):
    return ftc(os.path.join("examples", "fashion_mlp.ft"), f"--disable={switch}", "--emit=plan", "-o", os.devnull)


def make_kernel(kind, name, text):
    """Two artifacts: for Hopper, and for all from sm_80 on."""
    path = os.path.join(artifacts, f"{kind}-{file_name(name)}")
    with open(path + ".ft", "w") as file:
        file.write(text)
    for target in ("sm_90a",) if is_tiny else ("sm_90a", "sm_80"):
        ftc(path + ".ft", "--gpu", target, "--disable=join_launches", "-o", f"{path}.{target}.ptx")  # each kernel has its row


def file_name(name):
    return re.sub(r"\W+", "-", name)


def record(program, *classes):
    """One of test/num's programs: see replay.py."""
    done = subprocess.run([sys.executable, os.path.join(root, "bench/gpu/replay.py"), "record", os.path.join(folder, "suite"), os.path.join(root, program), *classes],
                          capture_output=True, text=True, env=dict(os.environ, FT_BUILD=build))
    said = done.stdout.strip().splitlines()
    print(f"recorded {program}: {said[-1] if said else done.stderr[-500:]}", flush=True)


def describe():
    git = call("git", "describe", "--always", "--dirty", "--abbrev=10", check=False)
    with open(os.path.join(folder, "pack.json"), "w") as file:
        json.dump({"commit": git.stdout.strip() or "unknown", "packed": datetime.date.today().isoformat(), "is_tiny": is_tiny}, file)


def main():
    os.makedirs(artifacts, exist_ok=True)
    describe()
    kernels = [("kernel", name, cases.kernel_text(name, is_tiny)) for name in cases.kernels(is_tiny)]
    kernels += [("attention", name, cases.attention_text(name, is_tiny)) for name in cases.attentions(is_tiny)]
    kernels += [("product", name, cases.product_text(name, is_tiny)) for name in cases.products(is_tiny)]
    probes = [name for name in cases.PROBES if not is_tiny or name in cases.TINY_PROBES]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("FT_PACK_JOBS", "2"))) as pool:
        work = [pool.submit(make_case, name) for name in chosen] + [pool.submit(make_probe, name) for name in probes] + [pool.submit(make_kernel, *kernel) for kernel in kernels]
        for done in work:
            done.result()
    if not is_tiny or {"suite", "all"} & set(sys.argv):
        for program in cases.SUITE:
            record(*program)
    made = sorted({variant for name in chosen for variant in cases.VARIANTS if os.path.exists(cases.artifact(artifacts, name, variant))})
    print(f"{len(chosen)} cases as {', '.join(made)}; {len(os.listdir(os.path.join(folder, 'probes')))} probes, {len(kernels)} kernels")


main()
