"""The random programs of every day: always the same ones, on the CPU, in the simulator and through the tools; the small
programs that campaigns found (found/) or to which a choice of --disable matters (choices/); what meets in one kernel (pairs.py); and several ranks (ranks.py).
FT_TURN, a number: of the random programs a fifth. Longer searches, with other seeds: scripts/soak. The last line is `N passed, N failed`."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import torch  # noqa: F401  once, for all that run() forks

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
sys.dont_write_bytecode = True
import start
from driver import BUILD, Driver


def run(file, *arguments):
    """(passed, failed)"""
    with tempfile.NamedTemporaryFile("r", prefix="ft-random-") as log:
        status = os.waitpid(start.fork(file, arguments, log.name), 0)[1]
        said = log.read()
    print(said, flush=True)
    last = re.findall(r"^(\d+) passed, (\d+) failed$", said, re.M)[-1:]
    return (int(last[0][0]), max(int(last[0][1]), int(status != 0))) if last else (0, 1)


def found():
    """What failed once does not fail again, on either machine, nor where LLVM does little."""
    driver, passed, failed = Driver(), 0, 0
    for program in sorted(glob.glob(os.path.join(HERE, "found", "*.ft"))):
        for machine in ("cpu", "quick:cpu", "sm_90a"):
            verdict, text = driver.ask_files(program, program[: -len("ft")] + "values", machine, None, None)
            passed, failed = passed + (verdict == "ok"), failed + (verdict != "ok")
            if verdict != "ok":
                print(f"{program} {machine}: {verdict}: {text}", flush=True)
    driver.stop()
    return passed, failed


def stops_without_a_harness():
    """A campaign whose harness fails (here there is no build to run) ends with a sentence, and counts none of its programs as run."""
    with tempfile.TemporaryDirectory(prefix="ft-random-") as folder:
        os.mkdir(os.path.join(folder, "bin"))
        os.symlink(os.path.join(BUILD, "bin", "ftc"), os.path.join(folder, "bin", "ftc"))
        command = [sys.executable, os.path.join(HERE, "campaign.py"), "--programs", "10000", "--jobs", "1", "--folder", folder]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, FT_BUILD=folder))
        with open(os.path.join(folder, "state-cpu.json")) as file:
            state = json.load(file)
    is_right = done.returncode == 3 and "20 programs in a row" in done.stdout and not done.stderr and not state["programs"] and not state["next"]
    if not is_right:
        print(f"a campaign without a build ends with {done.returncode}: {done.stdout}{done.stderr}{state}")
    return int(is_right), int(not is_right)


def some(seed, programs):
    """Which of so many programs, from this seed on: with FT_TURN a fifth of them. scripts/test gives the number of commits."""
    turn = os.environ.get("FT_TURN")
    first, last = (int(turn) % 5, int(turn) % 5 + 1) if turn else (0, 5)
    first, last = programs * first // 5, programs * last // 5
    return "--seed", str(seed + first), "--programs", str(last - first)


def main():
    folder = tempfile.mkdtemp(prefix="ft-random-")  # no TemporaryDirectory: processes are forked, and each would remove it
    try:
        campaign = [os.path.join(HERE, "campaign.py"), "--jobs", "1", "--folder", folder]
        parts = [found(), stops_without_a_harness(), run(os.path.join(HERE, "choices.py")), run(os.path.join(HERE, "pairs.py")),
                 run(*campaign, *some(0, 100), "--quick"), run(*campaign, *some(5000, 15), "--sim"),
                 run(*campaign, *some(0, 10), "--float8"), run(*campaign, *some(5, 5), "--float8", "--sim"),
                 run(os.path.join(HERE, "endtoend.py"), "--functions", "--programs", "25"), run(os.path.join(HERE, "ranks.py"), *some(0, 90))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    passed, failed = (sum(part[i] for part in parts) for i in range(2))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
