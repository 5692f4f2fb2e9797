"""One peer, one case, one process: compiles and warms up, prints "ready", waits for a line on its standard
input, measures, and prints a JSON line with the median time of a step.

  peers.py {eager,compile,autotune,compile-cudnn,jax,ceilings,kernels} [CASE] [--tiny] [--device cuda|cpu] [--seconds S]

So many peers may compile side by side while only one is measured, the others stopped (side.py). Fairness: the data is on the GPU, as ft
keeps it; a step takes a shuffled batch by index, converts it, and runs forward, loss, accuracy, backward and
update. f32 without tf32; bf16 by autocast. Peers get their fast modes: fused optimisers, channels_last,
flash attention, cuDNN's choice of convolutions made while they are alone, CUDA graphs (autotune), donated buffers (JAX),
a padded vocabulary. A round is many steps and one
synchronisation; the median of five rounds counts."""
import argparse
import contextlib
import fcntl
import json
import os
import statistics
import sys
import time
import traceback

import cases

parser = argparse.ArgumentParser()
parser.add_argument("peer", choices=["eager", "compile", "autotune", "compile-cudnn", "jax", "ceilings", "kernels"])
parser.add_argument("case", nargs="?", choices=list(cases.CASES))
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--device", default="cuda")
parser.add_argument("--seconds", type=float, default=4.0)


@contextlib.contextmanager
def timing_alone():
    """Compilers time kernels on the GPU to choose among them: one process at a time. Who holds it may have been stopped,
    so nobody waits longer than ten seconds."""
    with open(os.environ.get("FT_TIMING_LOCK") or os.devnull, "a") as lock:
        for _ in range(1000):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.01)
        yield


class Peer:
    """step(): starts one step. sync(): waits for all. steps_at_once: how many `step` runs. settle(): what is best done
    alone, before measuring."""

    steps_at_once = 1

    def settle(self):
        pass

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

    warm = 1 if is_tiny else max(2, 10 // peer.steps_at_once)
    run(warm)
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit(0)
    peer.settle()
    run(warm)
    once = run(warm)
    count = max(1 if is_tiny else 3, int(seconds / 5 / once))
    rounds = [run(count) / peer.steps_at_once * 1e3 for _ in range(5)]
    return {"ms": statistics.median(rounds), "low": min(rounds), "high": max(rounds), "steps": count * peer.steps_at_once, "memory": peer.memory()}


def main():
    arguments = parser.parse_args()
    said = {"peer": arguments.peer, "case": arguments.case}
    try:
        if arguments.peer in ("ceilings", "kernels"):
            import peers_kernels

            found = getattr(peers_kernels, arguments.peer)(arguments.device, arguments.tiny)
        elif arguments.peer == "jax":
            import peers_jax

            found = measure(peers_jax.make(arguments), arguments.seconds, arguments.tiny)
        else:
            import peers_torch

            found = measure(peers_torch.make(arguments), arguments.seconds, arguments.tiny)
        print(json.dumps({**said, **found}), flush=True)
    except ImportError as missing:
        print(json.dumps({**said, "missing": str(missing)[:200]}), flush=True)
    except Exception as error:  # whatever it is, the other peers go on; the log has the rest
        traceback.print_exc()
        print(json.dumps({**said, "failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"[:300]}), flush=True)


if __name__ == "__main__":
    main()
