"""The stages that ask whether it is right. smoke: each way of the runtime and each kind of kernel by itself, then
every model, small, in several ways; against the simulator's losses. suite: values and gradients of every op."""
import concurrent.futures
import functools
import json
import os
import re
import shutil
import sys

import cases
from report import command

# how a model may run; the target is its artifact's
WAYS = {
    "own kernels": dict(FT_CUBLASLT="own", FT_KEEP_DATA="1"),
    "own, for sm_80": dict(FT_CUBLASLT="own", FT_KEEP_DATA="1", variant="sm_80"),
    "batches sent": dict(FT_CUBLASLT="own", FT_KEEP_DATA="0"),
    "without graphs": dict(FT_CUBLASLT="own", FT_CUDA_NO_GRAPH="1"),
    "cuBLASLt": dict(FT_CUBLASLT="library", FT_KEEP_DATA="1"),
    "timed choice": dict(FT_CUBLASLT="", FT_KEEP_DATA="1"),
}
SANITIZED = ("mlp-64", "resnet18-32", "gpt2-124M")  # one of each kind
AT_ONCE = 6


class Smoke:
    def __init__(self, report, ftrun, packed):
        self.report, self.ftrun, self.packed = report, ftrun, packed

    def run(self):
        """False if nothing at all can run."""
        if not self.probe():
            return False
        self.models()
        self.sanitize()
        return True

    def apart(self, artifact, place, flags, log, **way):
        """How far the losses are from the simulator's, at most; or what went wrong."""
        with open(os.path.join(place, "losses.json")) as file:
            truth = json.load(file)
        code, out, err = command(self.ftrun, artifact, *flags, "--device", "cuda", "--log-jsonl", log, timeout=100, **way)
        if code != 0:
            return (err.strip() or out.strip() or f"ended with {code}").splitlines()[-1]
        if way.get("FT_CUBLASLT") == "library" and "without cuBLASLt" in out:
            return re.search(r"without cuBLASLt[^\n)]*", out).group(0)
        with open(log) as file:
            losses = [line["loss"] for line in map(json.loads, file) if "loss" in line]
        os.unlink(log)
        worst = cases.apart(losses, truth)
        return worst if worst < float("inf") else f"losses {losses} where the simulator has {truth}"

    # ── probes ───────────────────────────────────────────────────────────────────────────────────────────
    def probe(self):
        say, found = self.report.say, self.report.result.setdefault("features", {})
        for name, probe in cases.PROBES.items():
            place = os.path.join(self.report.root, "probes", re.sub(r"\W+", "-", name))
            if not os.path.isdir(place):
                continue
            got = self.apart(os.path.join(place, "model.ptx"), place, cases.smoke_flags(place, False), os.path.join(place, "gpu.jsonl"), **probe["way"])
            limit = cases.TOLERANCE[probe["precision"]]
            found[name] = "" if isinstance(got, float) and got <= limit else f"losses {got:.1e} apart from the simulator's" if isinstance(got, float) else got
            say(f"{name:20} {'ok   ' + format(got, '.1e') if not found[name] else 'FAILED  ' + found[name][:200]}")
            if found[name]:
                self.report.failed(f"probe {name}: {found[name]}")
            self.report.keep()
            if name == "one kernel" and not isinstance(got, float):
                return False
        return True

    # ── models ───────────────────────────────────────────────────────────────────────────────────────────
    def models(self):
        jobs = {}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for name in self.packed:
                for label, way in WAYS.items():
                    jobs[pool.submit(self.model, name, label, dict(way))] = name, label
            for job in concurrent.futures.as_completed(jobs):
                self.judge(*jobs[job], job.result())
        self.report.keep()

    def model(self, name, label, way):
        place = os.path.join(self.report.root, "smoke", name)
        artifact = cases.artifact(place, "model", way.pop("variant", self.best_variant(place)))
        if way.get("FT_CUBLASLT") == "":  # what is chosen is written beside the artifact
            artifact = shutil.copy(artifact, artifact.replace("model.", "timed."))
        way.update((key, value) for key, value in switches(self.report.result).items() if key != "FT_CUBLASLT" or way.get(key) != "own")
        return self.apart(artifact, place, cases.smoke_flags(place), os.path.join(place, re.sub(r"\W+", "-", label) + ".jsonl"), **way)

    def best_variant(self, place):
        """Another GPU than a Hopper takes only the second one."""
        return "sm_90a" if may_use(self.report.result, cases.artifact(place, "model", "sm_90a")) else "sm_80"

    def judge(self, name, label, got):
        limit = cases.TOLERANCE[cases.CASES[name]["precision"]]
        is_right = isinstance(got, float) and got <= limit
        self.report.result.setdefault("smoke", {}).setdefault(name, {})[label] = got if is_right else f"{got:.1e} apart" if isinstance(got, float) else got
        self.report.say(f"{name:14} {label:16} {'ok   ' + format(got, '.1e') if is_right else 'FAILED'}")
        if not is_right:
            self.report.failed(f"{name}, {label}: {got if not isinstance(got, float) else f'losses {got:.1e} apart from the simulator'}")

    # ── NVIDIA's memory checker ──────────────────────────────────────────────────────────────────────────
    def sanitize(self):
        names = [name for name in self.packed if name in SANITIZED]
        self.sanitizer = next(filter(os.path.exists, filter(None, [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"])), None)
        if not self.sanitizer:
            return self.report.say("compute-sanitizer is not here")
        with concurrent.futures.ThreadPoolExecutor(len(names) or 1) as pool:
            for name, (code, out, err) in zip(names, pool.map(self.sanitized, names)):
                last = [line for line in (out + err).splitlines() if "ERROR SUMMARY" in line]
                said = last[-1].strip("= ") if last else f"no summary: {(err or out).strip()[-150:]}"
                self.report.result.setdefault("sanitizer", {})[name] = said
                self.report.say(f"{name:14} compute-sanitizer: {said}")
                if code != 0:
                    self.report.failed(f"{name}: compute-sanitizer: {said}\n{(out + err)[-6000:]}")

    def sanitized(self, name):
        place = os.path.join(self.report.root, "smoke", name)
        real = os.path.join(os.path.dirname(self.ftrun), "ftrun.real")
        libraries = os.pathsep.join(filter(None, [os.path.join(self.report.root, "lib"), os.environ.get("LD_LIBRARY_PATH")]))
        return command(self.sanitizer, "--error-exitcode=9", real, cases.artifact(place, "model", self.best_variant(place)), "--device", "cuda", "--data", place, "--steps", "2",
                       "--set", "train.eval.every=0", FT_CUBLASLT="own", FT_CUDA_NO_GRAPH="1", LD_LIBRARY_PATH=libraries, timeout=90)


def switches(result):
    """The environment without what has failed."""
    found = {}
    for name, why in result.get("features", {}).items():
        if why:
            found.update(cases.PROBES[name].get("otherwise", {}))
    return found


@functools.cache
def kinds_of(artifact):
    """Its target, and the probes of the kinds of kernels in it."""
    with open(artifact) as file:
        text = file.read()
    found = set()
    for kernel in text.split(".entry ")[1:]:
        is_attention, is_wgmma = "_attention" in kernel.split("(", 1)[0], "wgmma.mma_async" in kernel
        found |= {("attention sm_90a" if is_wgmma else "attention")} if is_attention else {"wgmma"} if is_wgmma else {"mma.sync"} if "mma.sync" in kernel else set()
        found |= {"tma"} if "cp.async.bulk" in kernel else set()
        found |= {"joined launches"} if kernel.startswith("join") else set()
        found |= {"clusters"} if "multicast::cluster" in kernel else set()
    target = re.search(r"^\.target (\w+)", text, re.M)
    return target[1] if target else "", found


def may_use(result, artifact):
    """Whether this GPU can take it, and all kinds of its kernels that were probed are right."""
    target, kinds = kinds_of(artifact)
    gpu = result.get("machine", {}).get("seen by ftrun") or ""
    return not (target.endswith("a") and gpu and not re.search(rf"\b{target[:-1]}\b", gpu)) and not any(result.get("features", {}).get(kind) for kind in kinds)


# ── suite: values and gradients of every op on the GPU, and the declarations of its driver ─────────────────
def suite(report):
    root = report.root
    programs = [["test/e2e/cuda_abi.py"]]
    if os.path.isdir(os.path.join(root, "suite")):
        programs += cases.SUITE
    with concurrent.futures.ThreadPoolExecutor(len(programs)) as pool:
        for (program, *_), (code, out, err) in zip(programs, pool.map(lambda words: play(report, *words), programs)):
            (last,) = out.strip().splitlines()[-1:] or err.strip().splitlines()[:1] or ["nothing was printed"]
            report.say(f"{program} on cuda: {last}")
            report.result.setdefault("suite", {})[program] = last
            if code != 0:
                report.failed(f"{program}: {last}\n{err[-6000:]}")
    report.keep()


def play(report, program, *classes):
    words = [] if program.endswith("cuda_abi.py") else [os.path.join(report.root, "bench/gpu/replay.py"), "play", os.path.join(report.root, "suite")]
    return command(sys.executable, *words, os.path.join(report.root, program), *classes, timeout=200, **{"FT_BUILD": report.root, "FT_DEVICE": "cuda", "FT_CUBLASLT": "own", **switches(report.result)})
