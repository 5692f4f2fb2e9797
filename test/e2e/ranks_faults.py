"""Faults of ranks at random times: killed, stopped, delayed, cut off from the others, or different from them; also before they have
joined. Each time the job ends with a sentence that names the rank, within the time, with no process left behind and a checkpoint that goes
on; or, where the delay is shorter than distributed.timeout, it goes on itself. FT_SOAK=1: 220 of them. FT_SEED and FT_TRIALS=7,10-20:
these again; FT_EARLY=1: before the first step.

FT_SOAK=1 FT_TIMEOUT=12 on a machine of two cores with a load of 20 to 35, four parts of it at a time, seed 31: 223 faults (killed 48, killed
while the others wait for them to join 16, stopped 38, stopped until they are given up 17, delayed 19, a tenth of their time for longer than the
timeout 10, cut off 26, cut off for a while 8, different 24, lost while they compile 17), 50 of them before the first step, of every launcher and
mesh. All ended as they should, the longest 30 s after its fault. With FT_EARLY=1 and seed 33 one of 35 named rank 0, which waited for the
rank that was stopped between joining the engine and coming to rank 0: mended in runtime/communicate/watch.c. Later, beside two whole suites, seed 41:
222 of 223, one said "the connection to rank 1 is gone" for a rank that was killed while they joined; mended in comm_engine.c, and seed 43: 223 of 223."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import comm_tcp
import hosts
import support

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
RANKS, TIMEOUT = 4, int(os.environ.get("FT_TIMEOUT", 6 if os.environ.get("FT_SOAK") else 15))  # joining takes seconds where other tests run
LIMIT = 60  # seconds: what takes longer hangs; documented are distributed.timeout and 20 on a machine that is not busy
SAMPLES = 400
# the first ones are the daily test
DAILY = ["killed", "stopped", "delayed", "differs", "held", "compiles"]
SOAK = (DAILY + ["held"] * 15 + ["killed"] * 47 + ["stopped"] * 37 + ["delayed"] * 18 + ["slowed"] * 10 + ["late"] * 17 + ["cut"] * 26 + ["flap"] * 8
        + ["differs"] * 23 + ["compiles"] * 16)
# four ranks that take 8 samples a step together: what they share out
MESHES = {"data": ["data=any"], "zero 2": ["data=4", "zero=2"], "zero 3": ["data=4", "zero=3"], "tensor": ["data=2", "tensor=2"],
          "pipeline": ["data=2", "pipeline=2"], "pipeline, tensor": ["data=1", "pipeline=2", "tensor=2"], "tensor, zero 3": ["data=2", "tensor=2", "zero=3"]}
MACHINES = ["mpirun on 2 machines", "tcp on 2 machines"]
ANY = ["mpirun"] * 4 + ["ftrun --ranks"] * 2 + ["tcp"] * 2 + MACHINES
LAUNCHERS = {"killed": ANY, "stopped": ANY, "delayed": ANY, "slowed": ANY, "compiles": ["mpirun", "mpirun", "tcp"] + MACHINES, "late": ANY, "cut": MACHINES, "flap": MACHINES, "held": ANY[:-2], "differs": ["mpirun", "tcp"]}
MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  h = dropout(ACTIVATION(Linear(16, name="fc1")(x)), 0.2)
  loss = mean(cross_entropy(Linear(4, name="head")(h), y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = BATCH; seed = 5; optimizer = adamw(lr=0.01); epochs = 1000000
  checkpoint { every = 20 steps; keep = 3 }; log { every = 10 steps } }
"""


class Job:
    """What a launcher has started; or the ranks themselves, with what ends the others, as torchrun does, when one has failed."""

    def __init__(self, started):
        self.started, self.pids = started, [process.pid for process in started]
        self.failed_at = None

    def send_signal(self, number):
        for process in self.started:
            process.send_signal(number)

    def poll(self):
        codes = [process.poll() for process in self.started]
        if any(codes) and not self.failed_at:
            self.failed_at = time.monotonic()
            self.returncode = next(code for code in codes if code)
            for process, code in zip(self.started, codes):
                if code is None:
                    process.send_signal(signal.SIGTERM)
        if self.failed_at and time.monotonic() - self.failed_at > 5:
            self.send_signal(signal.SIGKILL)
        if None in codes:
            return None
        self.returncode = max(codes, key=abs) if not self.failed_at else self.returncode
        return self.returncode

    def wait(self, timeout):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("ranks", timeout)
            time.sleep(0.02)


class Faults(support.Case):
    def setUp(self):
        super().setUp()
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        numbers = numpy.random.default_rng(0)
        x, y = numbers.standard_normal((SAMPLES, 8)).astype("f4"), numbers.integers(0, 4, SAMPLES).astype("i4")
        for folder, count in ((".", SAMPLES), ("short", SAMPLES - 13)):
            os.makedirs(self.path(folder), exist_ok=True)
            numpy.save(self.path(folder, "x.npy"), x[:count])
            numpy.save(self.path(folder, "y.npy"), y[:count])
        of = lambda activation, batch: MODEL.replace("ACTIVATION", activation).replace("BATCH", str(batch))
        self.of, self.artifacts = of, {}
        self.alone = self.compile(of("relu", 2 * RANKS), name="one.so")
        self.choose("data")

    def choose(self, mesh):
        """What the next job's ranks share out; a pipeline takes two micro-batches at a time."""
        self.mesh, sets = mesh, dict(word.split("=") for word in MESHES[mesh])
        groups = 4 if sets["data"] == "any" else int(sets["data"])
        parts = 2 if "pipeline" in sets else 1
        flags = [word for name, value in sets.items() for word in ("--set", f"distributed.{name}={value}")] + ["--set", f"train.accumulate={parts}"]
        self.source = self.path("".join(letter for letter in mesh if letter.isalnum()) + ".ft")
        if mesh not in self.artifacts:
            batch = 2 * RANKS // groups // parts
            self.artifacts[mesh] = [self.compile(self.of(activation, batch), *flags, name=f"{activation}-{mesh}.so".replace(" ", ""))
                                    for activation in ("relu", "gelu")]
            block = "".join(f"{name} = {value}; " for name, value in sets.items())
            with open(self.source, "w") as file:
                file.write(self.of("relu", batch).replace("epochs = ", f"accumulate = {parts}; epochs = ") + f"distributed {{ {block}}}\n")
        self.model, self.other = self.artifacts[mesh]

    # ── a job ──
    def start(self, launcher, by_rank=None):
        """by_rank: flags of one rank, or another artifact."""
        flags = ["--threads", "1", "--log-jsonl", "log", "--set", f"distributed.timeout={TIMEOUT}", "--set", "train.checkpoint.dir=ck"]
        lines = []
        for rank in range(RANKS):
            model, more = (by_rank or {}).get(rank, (self.model, []))
            lines.append([FTRUN, model, *flags, *more])
        self.launcher = launcher
        self.out, self.err = open(self.path("out"), "w+"), open(self.path("err"), "w+")
        to = {"stdout": self.out, "stderr": self.err, "text": True, "cwd": self.folder}
        self.machines = hosts.Hosts(self.folder, self.addCleanup) if "machines" in launcher else None
        if launcher == "mpirun on 2 machines":
            return Job([self.machines.start(*lines[0], stdout=self.out, stderr=self.err)])
        if launcher == "ftrun --ranks":
            return Job([subprocess.Popen([FTRUN, "--ranks", str(RANKS), *lines[0][1:]], **to)])
        if launcher == "mpirun":
            joined = sum(([":", "-n", "1", *line] for line in lines), [])
            return Job([subprocess.Popen(MPIRUN + joined[1:], **to)])
        port = comm_tcp.free_port()
        ranks = []
        for rank, line in enumerate(lines):
            env = comm_tcp.variables(rank, RANKS, port)
            if self.machines:
                env.update(MASTER_ADDR=f"{hosts.NETWORK}.1", LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
                line = self.machines.on(rank // 2, *line)
            ranks.append(subprocess.Popen(line, env=env, **to))
        return Job(ranks)

    def said(self, file):
        with open(file.name, errors="replace") as text:
            return text.read()

    def steps(self):
        return [int(step) for step in re.findall(r"\bstep (\d+)/", self.said(self.out))]

    def wait_for_step(self, process, step):
        end = time.monotonic() + LIMIT
        while max(self.steps(), default=0) < step:
            self.assertIsNone(process.poll(), f"it ended before step {step}\n" + self.said(self.err))
            self.assertLess(time.monotonic(), end, f"it does not come to step {step}")
            time.sleep(0.02)

    def processes(self):
        """The ranks that there are, by number, as their launcher has told them."""
        found = subprocess.run(["pgrep", "-f", f"^{re.escape(FTRUN)} {re.escape(self.folder)}/"], capture_output=True, text=True).stdout.split()
        ranks = {}
        for pid in map(int, found):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    told = re.search(rb"(?:^|\0)(?:OMPI_COMM_WORLD_)?RANK=(\d+)", file.read())
                if told and os.path.exists(f"/proc/{pid}/exe"):
                    ranks[int(told[1])] = pid
            except OSError:
                pass
        return ranks

    def left(self):
        found = list(self.processes().values()) + (self.machines.pids() if self.machines else [])
        return subprocess.run(["ps", "-o", "pid,ppid,stat,wchan:20,args", "-p", ",".join(map(str, found))], capture_output=True,
                              text=True).stdout if found else ""

    def end(self, process, since):
        """Its sentences, once it has ended and left nothing behind."""
        try:
            process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            left = self.left()
            for pid in [*self.processes().values(), *process.pids]:
                os.kill(pid, signal.SIGKILL)
            process.wait(timeout=LIMIT)
            self.fail(f"it did not end in {LIMIT} s\n{left}{self.said(self.err)}")
        while self.left() and time.monotonic() - since < LIMIT:
            time.sleep(0.1)
        self.assertEqual(self.left(), "", "processes are left behind")
        self.longest = max(self.longest, time.monotonic() - since)
        return [line.removeprefix("error: ") for line in self.said(self.err).splitlines() if line.startswith("error: ")]

    def check_checkpoints(self):
        """The newest goes on; before the first there is none."""
        names = sorted(name for name in os.listdir(self.path("ck")) if re.fullmatch(r"step-\d+\.safetensors", name)) if os.path.isdir(self.path("ck")) else []
        if not names:
            return
        step = int(names[-1][5:13])
        done = support.run("ftrun", self.alone, "--set", "train.checkpoint.dir=ck", "--resume", "ck", "--steps", step + 2, cwd=self.folder)
        self.assertIn(f"ck/{names[-1]}: step {step} of", done.stdout)

    # ── the faults ──
    def check_sentence(self, process, said, names, is_early):
        self.assertNotEqual(process.returncode, 0)
        if not said and self.was_blind:
            return "before the first line of any other rank"
        self.assertGreaterEqual(len(said), 1, self.said(self.err))
        self.assertRegex(said[0], names)
        self.assertRegex(said[0], r"\((hosts? \S+|died at)|of host \S+ came")
        if not is_early:
            self.assertRegex(said[0], r"(seen:? .*(in step \d+|at its start|opening|reading)|does the network between them work)")
        # a rank 0 that was stopped is continued by mpirun, which ends it; each of two machines has a console
        self.assertLessEqual(len(said), 1 + ("rank 0" in said[0]) + (self.machines is not None), said)
        return "early, named" if is_early else "named"

    def sees_signals(self, pid):
        """Is it as far as its first line? mpirun ends the others when one has died, and before that nobody can say anything."""
        try:
            with open(f"/proc/{pid}/status") as file:
                return bool(int(re.search(r"SigCgt:\s*(\w+)", file.read())[1], 16) >> (signal.SIGTERM - 1) & 1)
        except OSError:
            return False

    def lose(self, kind, choice):
        """A rank, or the cable, at a random time: one in three while they start and join."""
        launcher = choice.choice(LAUNCHERS[kind])
        process = self.start(launcher)
        is_early = choice.random() < (1 if os.environ.get("FT_EARLY") else 0.35) and kind not in ("delayed", "flap")
        lost = choice.randrange(RANKS)
        if is_early:
            end = time.monotonic() + LIMIT
            while lost not in self.processes() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(choice.random() ** 2 * 0.7)
            is_early = not self.steps()
        else:
            self.wait_for_step(process, 20)
            time.sleep(choice.random() * 1.0)
        victim = self.processes().get(lost)
        self.assertIsNotNone(victim, f"rank {lost} is not there\n" + self.said(self.err))
        return process, is_early, victim, rf"\branks? (\d+, )*{lost}\b", time.monotonic()

    def killed(self, choice, kind="killed", number=signal.SIGKILL):
        process, is_early, victim, names, since = self.lose(kind, choice)
        os.kill(victim, number)
        self.was_blind = number == signal.SIGKILL and not any(self.sees_signals(pid) for pid in self.processes().values() if pid != victim)
        if number == signal.SIGKILL:
            names += "|only ranks? .* had come"
        return self.check_sentence(process, self.end(process, since), names, is_early)

    def held(self, choice):
        """It is stopped as soon as it is there, so that the others wait for it, and killed then."""
        process = self.start(choice.choice(LAUNCHERS["held"]))
        lost, end = choice.randrange(RANKS), time.monotonic() + LIMIT
        while not self.sees_signals(self.processes().get(lost)) and time.monotonic() < end:
            time.sleep(0.001)
        victim = self.processes()[lost]
        os.kill(victim, signal.SIGSTOP)
        while len(self.processes()) < RANKS or not all(map(self.sees_signals, self.processes().values())):
            self.assertLess(time.monotonic(), end, "four ranks do not come")
            time.sleep(0.01)
        time.sleep(choice.random())
        is_early = not self.steps()  # else it had joined before it was seen
        os.kill(victim, signal.SIGKILL)
        return self.check_sentence(process, self.end(process, time.monotonic()), rf"\brank {lost} \(host", is_early)

    def stopped(self, choice):
        return self.killed(choice, "stopped", signal.SIGSTOP)

    def late(self, choice):
        """It comes back when the others have given it up."""
        process, is_early, victim, names, since = self.lose("late", choice)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(TIMEOUT + 3 * choice.random())
        try:
            os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:  # it came back in time
            self.goes_on(process)
            return "in time"
        return self.check_sentence(process, self.end(process, since), names, is_early)

    def goes_on(self, process):
        step = max(self.steps())
        self.wait_for_step(process, step + 20)
        since = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.end(process, since), [])
        self.assertIn("the same command with --resume ck goes on", self.said(self.out)[-300:], self.said(self.err))
        return "went on"

    def delayed(self, choice):
        """For less than the timeout: nothing is to happen."""
        process, _, victim, _, _ = self.lose("delayed", choice)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(choice.random() * TIMEOUT / 4)
        os.kill(victim, signal.SIGCONT)
        return self.goes_on(process)

    def slowed(self, choice):
        """It has a tenth of its time, for longer than the timeout: it goes on, and so do all."""
        process, _, victim, _, since = self.lose("slowed", choice)
        while time.monotonic() - since < TIMEOUT + 2:
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.18)
            os.kill(victim, signal.SIGCONT)
            time.sleep(0.02)
            self.assertIsNone(process.poll(), self.said(self.err))
        return self.goes_on(process)

    def compiles(self, choice):
        """It is lost while each rank compiles the model for itself; or its compiler is."""
        self.model = self.source
        launcher, lost = choice.choice(LAUNCHERS["compiles"]), choice.randrange(RANKS)
        is_compiler, number = choice.random() < 0.3, choice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        process, end = self.start(launcher), time.monotonic() + LIMIT
        children = lambda pid: list(map(int, subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()))
        while not self.sees_signals(self.processes().get(lost)) or not children(self.processes().get(lost, 0)):
            self.assertLess(time.monotonic(), end, "it does not compile\n" + self.said(self.err))
            time.sleep(0.001)
            if self.steps():  # it was too fast to be seen
                break
        victim, is_early = self.processes()[lost], not self.steps()
        compiler = children(victim)
        os.kill(compiler[0] if is_compiler and compiler else victim, number)
        self.was_blind = number == signal.SIGKILL and not any(self.sees_signals(pid) for pid in self.processes().values() if pid != victim)
        if is_compiler and number == signal.SIGSTOP and not compiler:
            number = signal.SIGKILL
        names = rf"\branks? (\d+, )*{lost}\b" + ("|only ranks? .* had come" if number == signal.SIGKILL else "")
        said = self.check_sentence(process, self.end(process, time.monotonic()), names, is_early)
        return "its compiler: " + said if is_compiler else said

    def cut(self, choice):
        process, is_early, _, _, since = self.lose("cut", choice)
        self.machines.pull()
        names = r"\branks? (\d+, )*[0-3]\b" + ("" if is_early else "|does the network between them work")
        return self.check_sentence(process, self.end(process, since), names, is_early)

    def flap(self, choice):
        """The cable comes back before the timeout."""
        process, _, _, _, _ = self.lose("flap", choice)
        self.machines.pull()
        time.sleep(choice.random() * TIMEOUT / 4)
        self.machines.pull("up")
        return self.goes_on(process)

    def differs(self, choice):
        lost = choice.randrange(1, RANKS)
        others = {"the artifact of": (self.other, []),
                  r"the setting train\.lr of": (self.model, ["--set", "train.lr=0.02"]),
                  r"the setting train\.seed of": (self.model, ["--set", "train.seed=6"]),
                  "the train data of|the setting train.steps_per_epoch of|the setting train.total_steps of": (self.model, ["--data", self.path("short")]),
                  "--no-shuffle of": (self.model, ["--no-shuffle"]),
                  "--deterministic of": (self.model, ["--deterministic"])}
        what = choice.choice(sorted(others))
        process = self.start(choice.choice(LAUNCHERS["differs"]), {lost: others[what]})
        said = self.end(process, time.monotonic())
        self.assertEqual(process.returncode, 1, self.said(self.err))
        self.assertEqual(len(said), 1, said)
        self.assertRegex(said[0], rf"^({what}) rank {lost} is not the same as rank 0's$")
        return "named"

    def clear(self):
        """For the next trial, also after one that failed."""
        for pid in self.processes().values():
            os.kill(pid, signal.SIGKILL)
        if self.machines:
            self.machines.clear()
        shutil.rmtree(self.path("ck"), ignore_errors=True)
        if os.path.exists(self.path("log")):
            os.remove(self.path("log"))

    def test_faults(self):
        seed, chosen = int(os.environ.get("FT_SEED", 0)), os.environ.get("FT_TRIALS")
        kinds = list(enumerate(SOAK if os.environ.get("FT_SOAK") or chosen else DAILY))
        counts, self.longest = {}, 0
        for trial, kind in kinds:
            if chosen and not any(int(part.split("-")[0]) <= trial <= int(part.split("-")[-1]) for part in chosen.split(",")):
                continue
            with self.subTest(trial=trial, kind=kind, seed=seed):
                choice = random.Random(seed * 1000 + trial)
                self.machines, self.was_blind = None, False
                self.choose(choice.choice(["data"] * 3 + [*MESHES][1:]))
                try:
                    outcome = getattr(self, kind)(choice)
                    self.check_checkpoints()
                    counts[kind, self.launcher, outcome] = counts.get((kind, self.launcher, outcome), 0) + 1
                    if os.environ.get("FT_SOAK"):
                        print(f"trial {trial}, {kind}, {self.launcher}, {self.mesh}: {outcome}", file=sys.stderr, flush=True)
                except AssertionError as failure:  # in a long run, now and not at its end
                    print(f"trial {trial}, {kind}, {self.launcher}, {self.mesh}: {str(failure)[-2000:]}", file=sys.stderr, flush=True)
                    raise
                finally:
                    self.clear()
        told = "; ".join(f"{kind}, {launcher}, {outcome}: {count}" for (kind, launcher, outcome), count in sorted(counts.items()))
        print(f"{sum(counts.values())} faults, the longest took {self.longest:.0f} s to its end: {told}")


if __name__ == "__main__":
    support.main()
