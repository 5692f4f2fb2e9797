"""The GPU benchmark: the numerical suite on the device, then ft against its peers, one process each.
Called by bench/gpu.sh, with the folder that the archive was unpacked into."""
import argparse
import datetime
import json
import os
import re
import struct
import subprocess
import sys

import numpy

parser = argparse.ArgumentParser(prog="bench/gpu.sh run")
parser.add_argument("root")
parser.add_argument("--device", default="cuda")
parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each peer")
parser.add_argument("--out", default=".")
parser.add_argument("--no-suite", action="store_true")
arguments = parser.parse_args()
root, on_gpu = arguments.root, arguments.device.startswith("cuda")
FTRUN = os.path.join(root, "bin", "ftrun")
PEERS = {"eager": "torch eager", "compile": "torch.compile", "autotune": "torch max-autotune", "jax": "JAX jit"}
MODELS = [("fashion_mlp", "mlp", 64), ("fashion_mlp", "mlp", 8192), ("fashion_cnn", "cnn", 64), ("resnet_tiny", "resnet_tiny", 64)]
result = {"date": datetime.date.today().isoformat(), "device": arguments.device, "cases": []}


def say(text=""):
    print(text, flush=True)


def make_data(folder):
    """As many samples as Fashion-MNIST has; noise, for speed does not depend on it."""
    random = numpy.random.default_rng(1)
    os.makedirs(folder, exist_ok=True)
    for split, count in (("train", 60000), ("t10k", 10000)):
        with open(os.path.join(folder, f"{split}-images-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, 28, 28) + random.integers(0, 256, count * 784, dtype=numpy.uint8).tobytes())
        with open(os.path.join(folder, f"{split}-labels-idx1-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + random.integers(0, 10, count, dtype=numpy.uint8).tobytes())
    for split, count in (("train", 16384), ("valid", 1024)):
        numpy.save(os.path.join(folder, f"{split}-images.npy"), random.integers(0, 256, (count, 3, 32, 32), dtype=numpy.uint8))
        numpy.save(os.path.join(folder, f"{split}-labels.npy"), random.integers(0, 10, count).astype(numpy.int64))
    return folder


def command(*words, timeout=600, **environment):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=timeout, env=dict(os.environ, **environment))
    return done.returncode, done.stdout, done.stderr


def suite():
    """test/num/ops.py: what was compiled before, run here, against this machine's PyTorch in f64."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return say("numerical suite: skipped, there is no PyTorch to compare with")
    code, out, err = command(sys.executable, os.path.join(root, "bench/gpu/replay.py"), "play", os.path.join(root, "suite"), os.path.join(root, "test/num/ops.py"), "Ops",
                             FT_BUILD=root, FT_DEVICE=arguments.device)
    last = out.strip().splitlines()[-1] if out.strip() else "nothing was printed"
    say(f"numerical suite on {arguments.device}: {last}")
    result["suite"] = last
    if code != 0:
        say(err[-6000:])
    return code


def bench(artifact, data):
    """The median step in ms, and ftrun's whole table."""
    code, out, err = command(FTRUN, "bench", artifact, "--device", arguments.device, "--data", data, FT_KEEP_DATA="1")
    if code != 0:
        return None, err.strip()
    found = re.search(r"median ([0-9.]+) ms", out)
    work = re.search(r"work +([0-9.]+) MFLOP, ([0-9.]+) MB", out)
    return (float(found.group(1)), float(work.group(1)) * 1e6, float(work.group(2)) * 1e6), out


def peer(name, model, batch):
    try:
        code, out, err = command(sys.executable, os.path.join(root, "bench/gpu/peers.py"), name, model, "--batch", batch, "--seconds", arguments.seconds)
    except subprocess.TimeoutExpired:
        return {"failed": "took more than 10 minutes"}
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if code == 0 and lines else {"failed": (err.strip().splitlines() or ["no output"])[-1][:200]}


def measure(name, model, batch, data, ceilings):
    artifact = os.path.join(root, "artifacts", f"{name}-{batch}.ptx")
    ours, table = bench(artifact, data)
    if not ours:
        say(f"{name} batch {batch}: ft failed: {table}")
        return False
    ms, flops, moved = ours
    case = {"model": name, "batch": batch, "ft_ms": ms, "table": table, "peers": {}}
    say(f"\n{name}, batch {batch}: ft {ms:.4f} ms a step, {1000 / ms:.0f} steps/s, {batch * 1000 / ms:.0f} samples/s")
    if ceilings.get("copy_gb_s"):
        bandwidth, rate = moved / ms * 1e3 / 1e9 / ceilings["copy_gb_s"], flops / ms * 1e3 / 1e12 / ceilings["f32_tflops"]
        case["share_of_copy"], case["share_of_f32"] = bandwidth, rate
        say(f"  {100 * bandwidth:.1f} % of the copy bandwidth measured here, {100 * rate:.1f} % of the f32 products'")
    for key, label in PEERS.items():
        got = peer(key, model, batch)
        case["peers"][key] = got
        if "ms" in got:
            say(f"  {label:20} {got['ms']:9.4f} ms   ft is {got['ms'] / ms:6.2f} times as fast   ({got['version']})")
        else:
            say(f"  {label:20} {got.get('missing') or got.get('failed')}")
    result["cases"].append(case)
    return True


def dry(data):
    """Without a GPU: the artifacts run, and no more is said."""
    good = True
    for name, _, batch in MODELS:
        if batch > 64:
            continue
        code, out, err = command(FTRUN, os.path.join(root, "artifacts", f"{name}-{batch}.ptx"), "--device", arguments.device, "--data", data, "--steps", 2,
                                 "--set", "train.log.every=1", "--set", "train.eval.every=0")
        good &= code == 0
        say(f"{name}, batch {batch}, on {arguments.device}: " + (out.strip().splitlines()[-1] if code == 0 else err.strip()))
    return good


def main():
    code, out, _ = command(FTRUN, "devices")
    say(out.strip())
    failed = bool(not arguments.no_suite and suite())
    data = make_data(os.path.join(root, "data"))
    if not on_gpu:
        failed |= not dry(data)
    else:
        ceilings = peer("ceilings", "none", 64)
        result["ceilings"] = ceilings
        if "copy_gb_s" in ceilings:
            say(f"\n{ceilings['device']}: copy {ceilings['copy_gb_s']:.0f} GB/s; products f32 {ceilings['f32_tflops']:.1f}, tf32 {ceilings['tf32_tflops']:.0f}, bf16 {ceilings['bf16_tflops']:.0f} TFLOP/s")
        for name, model, batch in MODELS:
            failed |= not measure(name, model, batch, data, ceilings)
        say("\nResNet-18 at 32x32 and 224x224 in bf16: not yet, ft has no bf16 training so far")
        for case in result["cases"]:
            say(f"\n── {case['model']}, batch {case['batch']}\n{case['table'].strip()}")
    os.makedirs(arguments.out, exist_ok=True)
    with open(os.path.join(arguments.out, "gpu.json"), "w") as file:
        json.dump(result, file, indent=1)
    return 1 if failed else 0


sys.exit(main())
