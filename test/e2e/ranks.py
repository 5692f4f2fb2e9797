"""Several ranks of one training: what they are refused for, which samples each gets, who writes and who speaks, what they
compare before they begin, signals, and going on with another number of them."""
import glob
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
MPIRUN = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
HAS_MPI = bool(shutil.which("mpirun")) and bool(glob.glob(os.path.join(support.BUILD, "**", "libft-mpi.so"), recursive=True))
MLP = """
model M(x: f32[B, 8], y: i32[B]) {
  logits = Linear(4, name="head")(relu(Linear(16, name="fc1")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 4; seed = 5; optimizer = adam(lr=0.01); epochs = 2; checkpoint { every = 5 steps }; log { every = 1 steps } }
"""
CNN = """
model C(x: f32[B, 1, 6, 6], y: i32[B]) {
  logits = Linear(4, name="head")(flatten(relu(Conv2d(3, 3, name="conv")(x)), from=1))
  loss = mean(cross_entropy(logits, y))
}
data D { train = npy("i.npy", "y.npy") }
train { batch = 4; optimizer = sgd(lr=0.01) }
"""
SAMPLES = 103


class Ranks(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), random.standard_normal((SAMPLES, 8)).astype("f4"))
        numpy.save(self.path("i.npy"), random.standard_normal((SAMPLES, 1, 6, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, SAMPLES).astype("i4"))

    def start(self, *arguments, ranks=None, env=None, check=True, exit_code=0):
        """ftrun, as so many ranks by mpirun, or with its own --ranks."""
        command = [FTRUN, *map(str, arguments)]
        if ranks:
            command = MPIRUN + ["-n", str(ranks)] + command
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, env=dict(os.environ, **(env or {})))
        said = done.stdout + done.stderr
        for trace in ("Sanitizer", "Segmentation", "core dumped", "Assertion"):
            self.assertNotIn(trace, said)
        if check:
            self.assertEqual(done.returncode, exit_code, said[-3000:])
        return done

    def refused(self, sentence, *arguments, env):
        done = self.start(*arguments, env=env, exit_code=1)
        self.assertEqual([line for line in done.stderr.splitlines() if line], ["error: " + sentence])

    def one_of(self, ranks, rank=0):
        return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks)}


class Alone(Ranks):
    """What needs no MPI."""

    def test_plain_models_are_refused(self):
        for source, model in ((MLP, "M"), (CNN, "C")):
            path = self.compile(source)
            for command in ([], ["eval", "--weights", "w"]):
                self.refused(
                    f"mpirun has started 2 ranks, and model {model} is compiled for one: write distributed {{ data = any }} in "
                    f"{self.path('model.ft')}, or compile it with ftc --set distributed.data=any", *command[:1], path, *command[1:],
                    env=self.one_of(2))
            self.start(path, "--steps", 1)

    def test_the_number_must_fit(self):
        path = self.compile(MLP + "distributed { data = 4 }\n")
        sentence = ("model M is compiled for 4 ranks (distributed.data): start it with ftrun --ranks 4, or mpirun -n 4 ftrun")
        self.refused(sentence, path, env={})
        self.refused("mpirun has started 3 ranks, and model M is compiled for 4 (distributed.data)", path, env=self.one_of(3))

    def test_a_rank_leaves_the_word_to_rank_0(self):
        start = time.monotonic()
        done = self.start(self.compile(MLP), env=self.one_of(2, 1), exit_code=1)
        self.assertGreater(time.monotonic() - start, 1)
        self.assertIn("error: rank 1 (", done.stderr)

    def test_any_number_is_one_too(self):
        """A model for any number of ranks trains, evaluates and predicts alone, with the numbers of one for one rank."""
        losses = []
        for data in ("1", "any"):
            path = self.compile(MLP, "--set", f"distributed.data={data}")
            self.start(path, "--save", "w.safetensors", "--log-jsonl", "log", "--set", "train.log.console=false")
            losses.append([line["loss"] for line in support.read_jsonl(self.path("log"))])
            self.start("eval", path, "--weights", "w.safetensors")
        self.assertEqual(*losses)

    def test_commands_of_one_process(self):
        path = self.compile(MLP, "--set", "distributed.data=any")
        for command in (["bench", path], ["predict", path, "--weights", "w"], ["generate", path, "--weights", "w"],
                        ["tokenize", path, "--tokenizer", "t"]):
            self.refused(f"ftrun {command[0]} runs as one process, and mpirun has started 2: start it alone", *command, env=self.one_of(2))

    def test_torchrun_without_mpi(self):
        path = self.compile(MLP, "--set", "distributed.data=any")
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        self.refused("RANK and WORLD_SIZE say that this is one of 2 ranks, and nothing joins them: ranks on CPUs talk by MPI, so "
                     "start them with mpirun -n 2 or srun", path, env=variables)

    def test_starting(self):
        path = self.compile(MLP, "--set", "distributed.data=any")
        empty = self.path("empty")
        os.mkdir(empty)
        self.refused("--ranks: there is no mpirun here; install Open MPI (on Debian: apt install openmpi-bin)", path, "--ranks", 2,
                     env={"PATH": empty})
        done = self.start(path, "--ranks", 2, env=self.one_of(2), exit_code=2)
        self.assertIn("--ranks 2: this is rank 0 of 2 already, of those that mpirun has started; leave out --ranks", done.stderr)
        for wrong in ("0", "5000", "two"):
            self.start(path, "--ranks", wrong, exit_code=2)
        self.start("info", path, "--ranks", 2, exit_code=2)

    def test_starts_mpirun(self):
        """By a stand-in that writes down what it is started with."""
        with open(self.path("mpirun"), "w") as file:
            file.write('#!/bin/sh\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }\necho "$@"\nexit 7\n')
        os.chmod(self.path("mpirun"), 0o755)
        done = self.start("x.so", "--ranks=3", "--steps", "5", env={"PATH": self.folder + ":" + os.environ["PATH"]}, exit_code=7)
        words = done.stdout.split()
        self.assertEqual(words[-6:], ["-n", "3", os.path.realpath(FTRUN), "x.so", "--steps", "5"])
        self.assertIn("--oversubscribe", words)


if __name__ == "__main__":
    support.main()
