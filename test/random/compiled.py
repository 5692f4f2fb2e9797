"""Compiles fixed random programs, for fixed machines, to code, and runs none of it: the branches that scripts/coverage
--compiled asks for, which are the same wherever it runs. Prints what ftc does not compile."""
import os
import random
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import torch

import oracles
from driver import Driver
from generate import generate

PROGRAMS, EVERY = 720, 4  # every fourth one for a GPU: they take longer


def compile_one(driver, seed):
    """None, or why it was not compiled."""
    is_gpu = seed % EVERY == 0
    is_for_cores = oracles.is_for_cores(seed, is_gpu)
    machine = oracles.machine_of(random.Random(seed), is_gpu, is_for_cores) if is_gpu else "x86-64-v3"
    program = generate(seed, cores=is_for_cores)
    program.on_ranks, program.on_stages = seed % 5 == 1, seed % 5 == 3
    if program.on_stages:
        program.settings["accumulate"] = 3
    verdict, text, asked = oracles.ask(driver, program, "code:" + machine)
    if verdict == "refused" and (asked.on_ranks or asked.on_stages):
        asked.on_ranks = asked.on_stages = False
        verdict, text, _ = oracles.ask(driver, asked, "code:" + machine)
    return None if verdict == "ok" else f"seed {seed} for {machine}: {verdict}: {text[:300]}"


def work(seeds, failures):
    driver = Driver()
    failures += [wrong for seed in seeds if (wrong := compile_one(driver, seed))]
    driver.end()


def main():
    torch.set_num_threads(1)
    jobs, failures = os.cpu_count(), []
    threads = [threading.Thread(target=work, args=(range(i, PROGRAMS, jobs), failures)) for i in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
