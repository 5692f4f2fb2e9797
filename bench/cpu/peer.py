"""What peers.py and peers_gpt.py share: the command line, PyTorch's step, and the measurement, printed as a JSON line."""
import argparse
import json
import os
import resource
import time

START = time.perf_counter()


def parse(doc, peers, models, rounds, more=lambda parser: None):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=peers)
    parser.add_argument("model", choices=models)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=0, help="steps in a round (0: some seconds)")
    parser.add_argument("--rounds", type=int, default=rounds)
    more(parser)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before anything is imported that reads it
    return arguments


def torch_step(loss_of, optimizer):
    """A step of one batch, and how to wait for its loss. loss_of takes the batch."""

    def step(*batch):
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, lambda loss: float(loss.detach())


def measure(arguments, step, value, warmup, seconds, least):
    """Compilation and `warmup` steps are outside of the rounds, which take `seconds`, and `least` steps at least."""

    def run(count):
        begin = time.perf_counter()
        for _ in range(count):
            loss = step()
        value(loss)
        return (time.perf_counter() - begin) / count

    value(step())
    first_step = time.perf_counter() - START
    run(warmup)
    steps = arguments.steps or max(least, int(seconds / run(max(1, warmup // 2))))
    rounds = [1e3 * run(steps) for _ in range(arguments.rounds)]
    print(json.dumps({"peer": arguments.peer, "model": arguments.model, "threads": arguments.threads, "step_ms": rounds,
                      "median_ms": sorted(rounds)[len(rounds) // 2], "first_step_s": first_step,
                      "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
