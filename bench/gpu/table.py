"""The stages of bench/gpu.sh, in the folder of an unpacked pack: what runs there and what is printed."""
import argparse
import datetime
import glob
import json
import os
import re
import site
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases
import data
import llmc
from side import Side, command

parser = argparse.ArgumentParser(prog="bench/gpu.sh run")
parser.add_argument("root")
parser.add_argument("stages", nargs="+", help="smoke suite small resnet gpt kernels all, or a case")
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each peer")
parser.add_argument("--minutes", type=float, default=9.0, help="all of it; peers that are not ready by then are left out")
parser.add_argument("--out", default=".")
parser.add_argument("--peers", default=",".join(cases.PEERS))
parser.add_argument("--no-peers", dest="peers", action="store_const", const="")
arguments = parser.parse_args()
STAGES = ["smoke", "suite", "small", "resnet", "gpt", "kernels"]
unknown = [stage for stage in arguments.stages if stage not in STAGES + ["all"] + list(cases.CASES)]
if unknown:
    parser.error(f"{unknown[0]} is neither a stage ({' '.join(STAGES)} all) nor a case ({' '.join(cases.CASES)})")
root, tiny = os.path.abspath(arguments.root), arguments.tiny
FTRUN = os.path.join(root, "bin", "ftrun")
packed = [name for name in cases.CASES if os.path.isdir(os.path.join(root, "smoke", name))]
deadline = time.monotonic() + arguments.minutes * 60
peer_device = "cpu" if tiny else "cuda"
result = {"date": datetime.date.today().isoformat(), "tiny": tiny, "cases": []}
failures = []


def say(text=""):
    print(text, flush=True)


def failed(what):
    failures.append(what)
    say(f"FAILED: {what}")


def keep_result():
    os.makedirs(arguments.out, exist_ok=True)
    with open(os.path.join(arguments.out, "gpu.json"), "w") as file:
        json.dump(result, file, indent=1)


def find_library():
    """cuBLASLt, where Python's packages hold it."""
    if os.environ.get("FT_CUBLASLT_LIBRARY"):
        return
    places = site.getsitepackages() + [p for p in sys.path if p.endswith("-packages")]
    found = [path for place in places for path in glob.glob(os.path.join(place, "nvidia", "*", "lib", "libcublasLt.so.1*"))]
    if found:
        os.environ["FT_CUBLASLT_LIBRARY"] = sorted(found)[-1]
    say(f"cuBLASLt: {os.environ.get('FT_CUBLASLT_LIBRARY', 'left to the system')}")


# ── smoke: every case once, small, in several ways, against the simulator ───────────────────────────────
WAYS = {
    "own kernels": dict(FT_CUBLASLT="own", FT_KEEP_DATA="1"),
    "own, for sm_80": dict(FT_CUBLASLT="own", FT_KEEP_DATA="1", target="sm_80"),
    "batches sent": dict(FT_CUBLASLT="own", FT_KEEP_DATA="0"),
    "without graphs": dict(FT_CUBLASLT="own", FT_CUDA_NO_GRAPH="1"),
    "cuBLASLt": dict(FT_CUBLASLT="library", FT_KEEP_DATA="1"),
    "timed choice": dict(FT_CUBLASLT="", FT_KEEP_DATA="1"),
}


def losses_of(place, target="sm_90a", **way):
    log = os.path.join(place, "gpu.jsonl")
    if os.path.exists(log):
        os.unlink(log)
    with open(os.path.join(place, "losses.json")) as file:
        truth = json.load(file)
    code, out, err = command(FTRUN, cases.artifact(place, "model", target), *cases.smoke_flags(place), "--device", "cuda", "--log-jsonl", log, **way)
    if code != 0:
        return truth, None, err.strip()
    with open(log) as file:
        return truth, [json.loads(line)["loss"] for line in file], out


def smoke():
    for name in packed:
        tolerance = 2e-2 if cases.CASES[name]["precision"] == "bf16" else 1e-3
        for label, way in WAYS.items():
            truth, losses, said = losses_of(os.path.join(root, "smoke", name), **way)
            if losses is None:
                failed(f"{name}, {label}: {said[-1500:]}")
                continue
            worst = max(abs(a - b) / max(abs(b), 0.1) for a, b in zip(losses, truth)) if len(losses) == len(truth) else 9
            say(f"{name:14} {label:16} loss {losses[-1]:.6f}, simulator {truth[-1]:.6f}, apart {worst:.1e}{'' if worst <= tolerance else '   TOO FAR'}")
            if worst > tolerance or worst != worst:
                failed(f"{name}, {label}: losses {losses} where the simulator has {truth}")
    sanitize()


def sanitize():
    """NVIDIA's memory checker over two steps, where there is one."""
    if subprocess.run(["which", "compute-sanitizer"], capture_output=True).returncode != 0:
        return say("compute-sanitizer is not here")
    for name in [name for name in ("mlp-64", "resnet18-32", "gpt2-124M") if name in packed]:
        place = os.path.join(root, "smoke", name)
        code, out, err = command("compute-sanitizer", "--error-exitcode", 9, FTRUN, cases.artifact(place, "model", "sm_90a"), "--data", place, "--device", "cuda", "--steps", 2,
                                 "--set", "train.eval.every=0", FT_CUBLASLT="own", FT_CUDA_NO_GRAPH="1", timeout=120)
        last = [line for line in (out + err).splitlines() if "ERROR SUMMARY" in line]
        say(f"{name:14} compute-sanitizer: {last[-1].strip('= ') if last else 'no summary'}")
        if code != 0:
            failed(f"{name}: compute-sanitizer says\n{(out + err)[-3000:]}")


# ── suite: values and gradients of every op on the GPU, and the declarations of its driver ─────────────────────────────────────
def suite():
    programs = [("test/e2e/cuda_abi.py", [])]
    if os.path.isdir(os.path.join(root, "suite")):
        programs += [("test/num/ops.py", ["Ops"]), ("test/e2e/zoo.py", [])]
    for program, classes in programs:
        play = [] if program.endswith("cuda_abi.py") else [os.path.join(root, "bench/gpu/replay.py"), "play", os.path.join(root, "suite")]
        code, out, err = command(sys.executable, *play, os.path.join(root, program), *classes, FT_BUILD=root, FT_DEVICE="cuda", FT_CUBLASLT="own")
        last = out.strip().splitlines()[-1] if out.strip() else "nothing was printed"
        say(f"{program} on cuda: {last}")
        result.setdefault("suite", {})[program] = last
        if code != 0:
            failed(f"{program}: {err[-5000:]}")


# ── cases against peers ─────────────────────────────────────────────────────────────────────────────────
def bench(artifact, folder, per_kernel=False, **environment):
    """ftrun bench: (ms, flops and bytes of a step) and its table; None and what it said."""
    made = ["--data", folder] if folder else ["--made-up-data"]
    few = ["--steps", 2] if tiny else []
    code, out, err = command(FTRUN, "bench", artifact, "--device", "cuda", *made, *few, *(["--per-kernel"] if per_kernel else []), FT_KEEP_DATA="1", **environment)
    if code != 0:
        return None, err.strip()
    found = re.search(r"median ([0-9.]+) ms", out)
    work = re.search(r"work +([0-9.]+) MFLOP, ([0-9.]+) MB", out)
    return (float(found.group(1)), float(work.group(1)) * 1e6, float(work.group(2)) * 1e6), out


def planned_memory(artifact):
    with open(artifact) as file:
        return sum(int(bytes_) for bytes_ in re.findall(r'^//@ft memory "[^"]*" (\d+)', file.read(1 << 20), re.M))


def work_of(name, flops):
    """The operations of a step as papers count them: 6 for a parameter and token, and attention."""
    v = cases.values(name, tiny)
    if cases.CASES[name]["kind"] != "gpt2":
        return flops
    parameters = 12 * v["L"] * v["D"] ** 2 + (v["V"] + v["T"]) * v["D"]
    return v["batch"] * v["T"] * (6 * parameters + 12 * v["L"] * v["D"] * v["T"])


def measure_ours(name, folder):
    best = None
    for label, target, way in (("own kernels", "sm_90a", "own"), ("own, for sm_80", "sm_80", "own"), ("cuBLASLt where faster", "sm_90a", "")):
        measured, said = bench(cases.artifact(os.path.join(root, "artifacts"), name, target), folder, FT_CUBLASLT=way)
        if not measured:
            failed(f"{name}, {label}: {said[-1500:]}")
            continue
        say(f"  ft, {label:22} {measured[0]:10.4f} ms")
        if best is None or measured[0] < best[0]:
            best = (*measured, label)
    return best


def say_ours(name, case, best, artifact):
    ms, flops, moved, label = best
    v, ceilings = cases.values(name, tiny), result.get("ceilings", {})
    rate = v["batch"] * v.get("T", 1) * 1000 / ms
    case.update(ft_ms=ms, ft_by=label, per_second=rate, ft_memory=planned_memory(artifact))
    line = f"  ft: {1000 / ms:.1f} steps/s, {rate:.0f} {'tokens' if 'T' in v else 'samples'}/s, memory by plan {case['ft_memory'] / 2**20:.0f} MiB"
    peak = ceilings.get(f"{cases.CASES[name]['precision']}_tflops")
    if peak:
        case["share_of_copy"] = moved / ms * 1e3 / 1e9 / ceilings["copy_gb_s"]
        case["mfu"] = work_of(name, flops) / ms * 1e3 / 1e12 / peak
        line += f"; {100 * case['share_of_copy']:.1f} % of the copy bandwidth, {100 * case['mfu']:.1f} % of the {cases.CASES[name]['precision']} products' rate measured here (MFU)"
    say(line)


def compare(names):
    """ft first, alone; then all peers compile side by side, and each is measured alone."""
    ours, wanted = {}, [peer for peer in arguments.peers.split(",") if peer]
    for name in names:
        folder = data.make(name, os.path.join(root, "data", name), tiny)
        say(f"\n{name}, batch {cases.values(name, tiny)['batch']}, {cases.CASES[name]['precision']}")
        case = {"case": name, "values": cases.values(name, tiny), "peers": {}}
        ours[name] = case
        best = measure_ours(name, folder)
        if best:
            say_ours(name, case, best, cases.artifact(os.path.join(root, "artifacts"), name, "sm_90a"))
        result["cases"].append(case)
        keep_result()
    sides = [Side(name, peer, tiny, peer_device, arguments.seconds, arguments.out) for name in names for peer in cases.peers_of(name) if peer in wanted]
    for side in sides:
        side.wait_until_ready(deadline)
    for side in sides:
        ours[side.case]["peers"][side.peer] = side.measure(deadline)
    for name in names:
        if cases.CASES[name]["kind"] == "gpt2" and wanted:
            ours[name]["peers"]["llm.c"] = llmc.measure(root, cases.values(name, tiny), os.path.join(root, "data", name), tiny, max(10.0, deadline - time.monotonic()))
    keep_result()
    for name in names:
        say_peers(name, ours[name])


def say_peers(name, case):
    v = case["values"]
    say(f"\n── {name}, batch {v['batch']}, {cases.CASES[name]['precision']}: ft {case.get('ft_ms', float('nan')):.4f} ms")
    for peer, got in case["peers"].items():
        label = cases.PEERS.get(peer, peer)
        if "ms" not in got:
            say(f"  {label:20} {got.get('missing') or got.get('failed')}")
            continue
        ratio = got["ms"] / case["ft_ms"] if case.get("ft_ms") else float("nan")
        memory = f", memory {got['memory'] / 2**20:.0f} MiB" if got.get("memory") else ""
        say(f"  {label:20} {got['ms']:10.4f} ms   ft is {ratio:6.2f} times as fast   {v['batch'] * v.get('T', 1) * 1000 / got['ms']:.0f}/s{memory}")
    fastest = min((got["ms"] for got in case["peers"].values() if "ms" in got), default=None)
    if fastest and case.get("ft_ms"):
        case["ratio"] = fastest / case["ft_ms"]
        say(f"  against the fastest: {case['ratio']:.2f}x")


# ── kernels ─────────────────────────────────────────────────────────────────────────────────────────────
def kernel_row(table, part):
    """us, GB/s and share of the copy of the kernel whose name holds `part`: the largest, if several do."""
    for line in table.splitlines():
        found = re.match(r" *([0-9.]+) +[0-9.]+% +[0-9.]+% .* ([0-9.]+) +([0-9.]+)%  \S+ .*\((\w+)[,)]", line)
        if found and part in found[4]:
            return float(found[1]), float(found[2]), float(found[3]), found[4]
    return None


def kernels():
    result["kernels"] = {}
    for name in cases.kernels(tiny):
        part = cases.KERNELS[name][-1]
        artifact = os.path.join(root, "artifacts", "kernel-" + re.sub(r"\W+", "-", name) + ".ptx")
        measured, table = bench(artifact, None, per_kernel=True)
        row = kernel_row(table, part) if measured else None
        if not row:
            failed(f"kernel {name}: {table[-1500:]}")
            continue
        result["kernels"][name] = row
        say(f"{name:22} {row[0]:10.1f} us {row[1]:9.1f} GB/s {row[2]:6.1f} % of the copy   {row[3]}")
    for name in packed:
        folder = data.make(name, os.path.join(root, "data", name), tiny)
        measured, table = bench(cases.artifact(os.path.join(root, "artifacts"), name, "sm_90a"), folder, per_kernel=True)
        if not measured:
            failed(f"{name}, table of kernels: {table[-1500:]}")
            continue
        os.makedirs(arguments.out, exist_ok=True)
        with open(os.path.join(arguments.out, f"kernels-{name}.txt"), "w") as file:
            file.write(table)
        say(f"\n── {name}\n" + "\n".join(line[:150] for line in table.strip().splitlines()[:18]))
        keep_result()


def ceilings():
    if not arguments.peers or "ceilings" in result:
        return
    code, out, err = command(sys.executable, os.path.join(root, "bench/gpu/peers.py"), "ceilings", "--device", peer_device)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    result["ceilings"] = json.loads(lines[-1]) if code == 0 and lines else {}
    c = result["ceilings"]
    if c.get("copy_gb_s"):
        say(f"{c['device']}: copy {c['copy_gb_s']:.0f} GB/s; products f32 {c['f32_tflops']:.1f}, tf32 {c['tf32_tflops']:.1f}, bf16 {c['bf16_tflops']:.1f} TFLOP/s")
    else:
        say(f"ceilings: {c.get('missing') or err.strip()[-300:]}")


def main():
    code, out, err = command(FTRUN, "devices")
    say(out.strip() or err.strip())
    find_library()
    stages = STAGES if "all" in arguments.stages else arguments.stages
    for stage in stages:
        say(f"\n════ {stage}")
        if stage in ("smoke", "suite", "kernels"):
            {"smoke": smoke, "suite": suite, "kernels": kernels}[stage]()
        else:
            ceilings()
            compare([stage] if stage in cases.CASES else [name for name in packed if cases.CASES[name]["stage"] == stage])
        keep_result()
    say(f"\n{len(failures)} failed" + "".join(f"\n  {what.splitlines()[0][:200]}" for what in failures))
    return 1 if failures else 0


sys.exit(main())
