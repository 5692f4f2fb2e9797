"""ft against its peers. All peers compile side by side meanwhile; whoever is measured is measured alone."""
import json
import os
import re

import cases
import data
import llmc
import smoke
from report import command
from side import Side, Sides

STEPS = 4  # by which the ways of one model are compared
AT_ONCE = {"gpt2": 3}  # peers in the GPU's memory at a time, where memory is what is short


class Compare:
    def __init__(self, report, arguments, clock):
        self.report, self.arguments, self.clock = report, arguments, clock
        self.tiny, self.root = arguments.tiny, report.root
        self.ftrun = os.path.join(self.root, "bin", "ftrun")
        self.wanted = [peer for peer in arguments.peers.split(",") if peer]

    def run(self, names, seconds):
        end = self.clock.within(seconds)
        started = {name: self.start(name) for name in names}
        queue = [(name, peer) for peer in self.wanted for name in names if peer in cases.peers_of(name)]
        room = min((AT_ONCE[cases.CASES[name]["kind"]] for name in names if cases.CASES[name]["kind"] in AT_ONCE), default=len(queue))
        sides = Sides([self.side(*pair) for pair in queue[:room]])
        try:
            for name in names:
                self.measure_ours(name, started[name], sides)
            self.measure_peers(sides, queue[room:], end)
        finally:
            sides.end()
        for name in names:
            if cases.CASES[name]["kind"] == "gpt2" and self.wanted:
                llmc.measure(self.report, started[name], self.data_of(name), self.tiny, max(60.0, self.clock.left()))
            self.say_result(name, started[name])
        self.report.keep()

    def start(self, name):
        self.report.say(f"\n{name}, batch {cases.values(name, self.tiny)['batch']}, {cases.CASES[name]['precision']}")
        data.make(name, self.data_of(name), self.tiny)
        case = {"case": name, "values": cases.values(name, self.tiny), "ft": {}, "ft_memory": {}, "peers": {}}
        self.report.result["cases"][name] = case
        return case

    def data_of(self, name):
        return os.path.join(self.root, "data", name)

    # ── ft ───────────────────────────────────────────────────────────────────────────────────────────────
    def candidates(self, name, is_spare):
        """(label, variant, environment): each variant by its own kernels, the first one with the library too."""
        off = smoke.switches(self.report.result)
        for variant in cases.variants_of(name):
            if bool(cases.VARIANTS[variant].get("is_spare")) != is_spare or not os.path.exists(self.artifact(name, variant)):
                continue
            if not smoke.may_use(self.report.result, self.artifact(name, variant)):
                self.report.say(f"  ft, {variant}: left out, its kinds of kernels or its target failed before")
                continue
            label = f"V {cases.CASES[name]['padded']}" if variant == "padded" else variant
            yield f"own kernels, {label}", variant, {"FT_CUBLASLT": "own", **off}
            if off.get("FT_CUBLASLT") != "own" and variant in ("sm_90a", "padded"):
                yield f"cuBLASLt where faster, {label}", variant, {"FT_CUBLASLT": "", **off}

    def artifact(self, name, variant):
        return cases.artifact(os.path.join(self.root, "artifacts"), name, variant)

    def check(self, name, variant, environment):
        """The losses of a few steps at full size; or what was said."""
        log = os.path.join(self.report.state, "check.jsonl")
        if os.path.exists(log):
            os.unlink(log)
        flags = ["--steps", STEPS, "--set", "train.log.every=1", "--set", "train.eval.every=0", "--set", "train.schedule.warmup=2", "--set", f"train.checkpoint.dir={self.report.path('runs')}"]
        code, out, err = command(self.ftrun, self.artifact(name, variant), "--data", self.data_of(name), "--device", "cuda", "--log-jsonl", log, *flags, timeout=120, FT_KEEP_DATA="1", **environment)
        if code != 0:
            return None, (err.strip() or out.strip() or f"ended with {code}").splitlines()[-1]
        with open(log) as file:
            return [line["loss"] for line in map(json.loads, file) if "loss" in line], ""

    def measure_ours(self, name, case, sides):
        """Ways that agree with another one are measured; the spares only if none of the first ones does."""
        near = cases.NEAR[cases.CASES[name]["kind"]]
        for is_spare in (False, True):
            found = []
            for label, variant, environment in self.candidates(name, is_spare):
                losses, said = self.check(name, variant, environment)
                if losses:
                    found.append((label, variant, environment, losses))
                else:
                    case["ft"][label] = said[:200]
                    self.report.failed(f"{name}, {label}: {said}")
            for label, variant, environment, losses in found:
                others = [loss for other, its_variant, _, loss in found if other != label and (its_variant == "padded") == (variant == "padded")]
                if others and not any(cases.apart(losses, other) <= near for other in others):
                    case["ft"][label] = f"other losses than every other way: {losses[-1]:.5f}"
                    self.report.failed(f"{name}, {label}: its losses {losses} are those of no other way: {others}")
                    continue
                with sides.alone():
                    self.bench(name, case, label, variant, environment)
            if case.get("ft_ms"):
                return

    def bench(self, name, case, label, variant, environment):
        measured, said = bench(self.ftrun, self.artifact(name, variant), self.data_of(name), self.tiny, **environment)
        if not measured:
            case["ft"][label] = said.splitlines()[-1][:200] if said else "no result"
            return self.report.failed(f"{name}, {label}: {said}")
        ms, flops, moved = measured
        self.report.say(f"  ft, {label:40} {ms:10.4f} ms")
        case["ft"][label], case["ft_memory"][label] = ms, planned_memory(self.artifact(name, variant))
        if not case.get("ft_ms") or ms < case["ft_ms"]:
            case.update(ft_ms=ms, ft_by=label, ft_variant=variant, mfu_rate=self.work_of(name, flops) / ms * 1e3, moved=moved / ms * 1e3)
        self.report.keep()

    def work_of(self, name, flops):
        """The operations of a step as papers count them: 6 for a parameter and token, and attention."""
        v = cases.values(name, self.tiny)
        if cases.CASES[name]["kind"] != "gpt2":
            return flops
        parameters = 12 * v["L"] * v["D"] ** 2 + (v["V"] + v["T"]) * v["D"]
        return v["batch"] * v["T"] * (6 * parameters + 12 * v["L"] * v["D"] * v["T"])

    # ── peers ────────────────────────────────────────────────────────────────────────────────────────────
    def side(self, name, peer):
        return Side(name, peer, self.tiny, "cpu" if self.tiny else "cuda", self.arguments.seconds, self.report.state)

    def measure_peers(self, sides, rest, end):
        again = []

        def tell(side):
            if side.is_out_of_memory() and (side.case, side.peer) not in again:
                again.append((side.case, side.peer))  # others were there: once more, alone
            self.tell(side)
            if rest:
                sides.sides.append(self.side(*rest.pop(0)))

        sides.measure_all(end, tell)
        for pair in again:
            if self.clock.left() > 60:  # less would be cut off
                alone = Sides([self.side(*pair)])
                alone.measure_all(self.clock.within(120), self.tell)

    def tell(self, side):
        self.report.result["cases"][side.case]["peers"][side.peer] = side.found
        got = side.found
        self.report.say(f"  {side.case}: {cases.PEERS[side.peer]:32} {format(got['ms'], '10.4f') + ' ms' if 'ms' in got else got.get('missing') or got.get('failed')}")
        with open(side.log, errors="replace") as file:
            self.report.append("peers.txt", f"──── {side.case} {side.peer}\n{file.read()[-20000:]}")
        self.report.keep()

    def say_result(self, name, case):
        fastest = min((got["ms"], peer) for peer, got in case["peers"].items() if "ms" in got) if any("ms" in got for got in case["peers"].values()) else None
        if fastest and case.get("ft_ms"):
            case["ratio"], case["fastest"] = fastest[0] / case["ft_ms"], fastest[1]
            self.report.say(f"── {name}: ft {case['ft_ms']:.4f} ms, the fastest peer ({cases.PEERS.get(fastest[1], fastest[1])}) {fastest[0]:.4f} ms: {case['ratio']:.2f}x")
        elif case.get("ft_ms"):
            self.report.say(f"── {name}: ft {case['ft_ms']:.4f} ms")


def bench(ftrun, artifact, folder, tiny, per_kernel=False, steps=None, **environment):
    """ftrun bench: (ms, flops and bytes of a step) and its table; None and what it said."""
    made = ["--data", folder] if folder else ["--made-up-data"]
    few = ["--steps", 2 if tiny else steps] if tiny or steps else []
    code, out, err = command(ftrun, "bench", artifact, "--device", "cuda", *made, *few, *(["--per-kernel"] if per_kernel else []), timeout=150, **{"FT_KEEP_DATA": "1", **environment})
    if code != 0:
        return None, err.strip() or out.strip()
    found = re.search(r"median ([0-9.]+) ms", out)
    work = re.search(r"work +([0-9.]+) MFLOP, ([0-9.]+) MB", out)
    if not found or not work:
        return None, f"ftrun bench printed no time: {out[-300:]}"
    return (float(found.group(1)), float(work.group(1)) * 1e6, float(work.group(2)) * 1e6), out


def planned_memory(artifact):
    with open(artifact) as file:
        return sum(int(bytes_) for bytes_ in re.findall(r'^//@ft memory "[^"]*" (\d+)', file.read(1 << 20), re.M))
