"""One peer, one case, one process: compiles and warms up, prints "ready", waits for a line on its standard
input, measures, and prints a JSON line with the median time of a step.

  peers.py {eager,compile,autotune,jax,ceilings} [CASE] [--tiny] [--device cuda|cpu] [--seconds S]

So many peers may compile side by side while only one is measured. Fairness: the data is on the GPU, as ft
keeps it; a step takes a shuffled batch by index, converts it, and runs forward, loss, accuracy, backward and
update. f32 without tf32; bf16 by autocast. Peers get their fast modes: fused optimisers, channels_last,
scaled_dot_product_attention, CUDA graphs (autotune), donated buffers (JAX). A round is many steps and one
synchronisation; the median of five rounds counts."""
import argparse
import json
import statistics
import sys
import time

import cases

parser = argparse.ArgumentParser()
parser.add_argument("peer", choices=["eager", "compile", "autotune", "jax", "ceilings"])
parser.add_argument("case", nargs="?", choices=list(cases.CASES))
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--device", default="cuda")
parser.add_argument("--seconds", type=float, default=4.0)


class Peer:
    """step(): starts one step. sync(): waits for all. steps_at_once: how many `step` runs."""

    steps_at_once = 1

    def sync(self):
        pass

    def memory(self):
        return None


def measure(peer, seconds, is_tiny):
    def run(count):
        start = time.perf_counter()
        for _ in range(count):
            peer.step()
        peer.sync()
        return (time.perf_counter() - start) / count

    warm = 1 if is_tiny else max(2, 20 // peer.steps_at_once)
    run(warm)
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit(0)
    once = run(warm)
    count = max(1 if is_tiny else 3, int(seconds / 5 / once))
    rounds = [run(count) / peer.steps_at_once * 1e3 for _ in range(5)]
    return {"ms": statistics.median(rounds), "low": min(rounds), "high": max(rounds), "steps": count * peer.steps_at_once, "memory": peer.memory()}


def ceilings(device):
    """What the card reaches here: a large copy, and large products, by events, on random data."""
    import torch

    is_gpu = device == "cuda"

    def timed(work, repeats=10):
        times = []
        work()
        for _ in range(repeats):
            if is_gpu:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                work()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end) * 1e-3)
            else:
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    a = torch.empty(1 << (30 if is_gpu else 20), dtype=torch.uint8, device=device).random_()
    b = torch.empty_like(a)
    result = {"device": torch.cuda.get_device_name(0) if is_gpu else "cpu", "copy_gb_s": 2 * a.numel() / timed(lambda: b.copy_(a)) / 1e9}
    del a, b
    n = 8192 if is_gpu else 64
    for name, dtype, tf32 in (("f32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        x, y = torch.randn(n, n, device=device).to(dtype), torch.randn(n, n, device=device).to(dtype)
        result[f"{name}_tflops"] = 2 * n**3 / timed(lambda: torch.mm(x, y)) / 1e12
    return result


def main():
    arguments = parser.parse_args()
    said = {"peer": arguments.peer, "case": arguments.case}
    try:
        if arguments.peer == "ceilings":
            found = ceilings(arguments.device)
        elif arguments.peer == "jax":
            import peers_jax

            found = measure(peers_jax.make(arguments), arguments.seconds, arguments.tiny)
        else:
            import peers_torch

            found = measure(peers_torch.make(arguments), arguments.seconds, arguments.tiny)
        print(json.dumps({**said, **found}))
    except ImportError as missing:
        print(json.dumps({**said, "missing": str(missing)}))


if __name__ == "__main__":
    main()
