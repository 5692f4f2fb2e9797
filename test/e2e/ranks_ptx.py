"""Several ranks that run a PTX artifact: on the simulator, whose collectives go to the ranks as a CPU's do, and on the cuda
device over a driver and an NCCL without a GPU (test/fake), whose kernels run in the simulator: the same numbers, in any order
that streams and graphs allow; collectives beside backward; and one sentence in time for each way to fail."""
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
import ranks as of_cpus

RECIPES, WHOLE = of_cpus.RECIPES, of_cpus.WHOLE
STEPS = 6


class Ptx(of_cpus.Ranks):
    """One training as a PTX artifact on several ranks, against one CPU."""

    def setUp(self):
        super().setUp()
        of_cpus.write_tokens(self)

    def artifact(self, recipe, ranks, target="ptx"):
        source = RECIPES[recipe][0] + f"  batch = {WHOLE // ranks}; seed = 5; epochs = 1; eval every {STEPS} steps; log {{ every = 1 steps }} }}\n"
        return self.compile(source, "--set", "distributed.data=any", name=f"{recipe}-{ranks}.{target}")

    def train(self, path, *flags, ranks=None, env=None, name="run"):
        """What the log and --save hold."""
        log, weights = self.path(name + ".jsonl"), self.path(name + ".safetensors")
        self.start(path, "--steps", STEPS, "--log-jsonl", log, "--save", weights, *flags, ranks=ranks, env=env)
        return support.read_jsonl(log), support.read_safetensors(weights)

    assert_same = of_cpus.Joined.assert_same


@unittest.skipUnless(of_cpus.HAS_MPI, "no MPI: libft-mpi.so or mpirun is missing")
class Simulated(Ptx):
    def test_trains_as_one(self):
        """Losses, metrics, evaluations and final weights of 2 and 4 simulated GPUs are those of one CPU with the whole batch."""
        for turn, (recipe, (_, tolerance)) in enumerate(RECIPES.items()):
            one = self.train(self.artifact(recipe, 1, "so"))
            for ranks in of_cpus.by_turns((2, 4), turn):
                with self.subTest(recipe=recipe, ranks=ranks):
                    many = self.train(self.artifact(recipe, ranks), "--device", "sim", ranks=ranks)
                    self.assert_same(one, many, tolerance)

    def test_alone(self):
        """A model for any number of ranks is one for a single simulated GPU, too."""
        self.assert_same(self.train(self.artifact("mlp", 1, "so")), self.train(self.artifact("mlp", 1), "--device", "sim"), RECIPES["mlp"][1])


    def test_prepared(self):
        """Evaluations by products of integers and by rounded weights, which each rank prepares after its updates, are those of one CPU; so
        are those of ranks that have parts of the layers. What is trained is beside them, so that no number is rounded otherwise."""
        source = """
model M(x: f32[B, 8], y: i32[B]) {
  h = Linear(64, name="up")(x)
  r = QuantLinear(48, bits=4, input_bits=none, group=32, name="r")(stop_gradient(h))
  n = QuantLinear(20, bits=8, input_bits=none, name="n")(relu(r))
  param w: [8, 12] = normal(0.5)
  q = fake_quant(x, 0.03125) @ fake_quant(w, 0.03125)
  logits = Linear(4, name="head")(h) + stop_gradient(0.1 * n[:, 0:4] + 0.1 * q[:, 0:4])
  loss = mean(cross_entropy(logits, y))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { optimizer = sgd(lr=0.05); seed = 5; epochs = 1; eval every 2 steps; log { every = 1 steps }; batch = """
        one = self.train(self.compile(source + f"{WHOLE} }}\n", name="prepared.so"))
        for ranks, flags in ((2, ()), (2, ("--set", "distributed.tensor=2"))):
            with self.subTest(ranks=ranks, flags=flags):
                batch = WHOLE if flags else WHOLE // ranks
                path = self.compile(source + f"{batch} }}\n", *(flags or ("--set", "distributed.data=any")), name="prepared.ptx")
                with open(path) as file:
                    text = file.read()
                self.assertIn("fma.rn.bf16x2", text)
                self.assertIn("for weights", text)
                self.assert_same(one, self.train(path, "--device", "sim", ranks=ranks), 2e-5)


FAKE = os.path.join(support.BUILD, "fake")
DRIVER, NCCL = (os.path.join(FAKE, f"libfake_{name}.so") for name in ("cuda", "nccl"))


@unittest.skipUnless(of_cpus.HAS_MPI, "no MPI: libft-mpi.so or mpirun is missing")
class Nccl(Ptx):
    def environment(self, **more):
        base = {"FT_CUDA_LIBRARY": DRIVER, "FT_NCCL_LIBRARY": NCCL, "FT_CUBLASLT": "own", "FT_FAKE_CUDA_COUNT": "4",
                "FT_FAKE_CUDA_REPORT": self.path("report")}
        return {**base, **{name: str(value) for name, value in more.items()}}

    def train_on_gpus(self, path, ranks, *flags, **more):
        return self.train(path, "--device", "cuda", *flags, ranks=ranks, env=self.environment(**more))

    def report(self):
        with open(self.path("report")) as file:
            return {name: int(value) for name, value in (line.split() for line in file)}

    def assert_bitwise(self, one, other):
        without_times = lambda log: [{k: v for k, v in line.items() if k != "samples_per_s"} for line in log]
        self.assertEqual(without_times(one[0]), without_times(other[0]))
        for name in one[1]:
            numpy.testing.assert_array_equal(one[1][name], other[1][name], err_msg=name)

    def test_trains_as_over_mpi(self):
        """Two ranks have MPI's bits (a sum of two has no order), and four those of one CPU within summation."""
        for recipe, (_, tolerance) in RECIPES.items():
            with self.subTest(recipe=recipe):
                path = self.artifact(recipe, 2)
                simulated = self.train(path, "--device", "sim", ranks=2)
                self.assert_bitwise(simulated, self.train_on_gpus(path, 2))
                self.assertEqual(self.report()["left"], 0, "memory that was not freed")
                one = self.train(self.artifact(recipe, 1, "so"))
                self.assert_same(one, self.train_on_gpus(self.artifact(recipe, 4), 4, FT_FAKE_CUDA_SEED=3, FT_FAKE_NCCL_SEED=5), tolerance)

    def test_same_numbers_in_any_order(self):
        """Late works, slow streams, a driver without edges (the branch is a stream then), and no graphs at all."""
        path = self.artifact("gpt", 2)
        truth = self.train(path, "--device", "sim", ranks=2)
        ways = (dict(FT_FAKE_CUDA_SEED=1, FT_FAKE_NCCL_SEED=1), dict(FT_FAKE_CUDA_SEED=6, FT_FAKE_NCCL_SEED=2),
                dict(FT_FAKE_CUDA_NO_EDGES=1, FT_FAKE_CUDA_SEED=9), dict(FT_CUDA_NO_GRAPH=1, FT_FAKE_CUDA_SEED=10, FT_FAKE_NCCL_SEED=4))
        for more in of_cpus.by_turns(ways, 0):
            with self.subTest(**more):
                self.assert_bitwise(truth, self.train_on_gpus(path, 2, **more))

    def test_shards(self):
        """distributed.zero on GPUs has the bits that it has in the simulator over MPI."""
        for level in (1, 2, 3):
            path = self.compile(RECIPES["mlp"][0] + "  batch = 4; seed = 5; log { every = 1 steps } }\n", "--set", "distributed.data=2", "--set",
                                f"distributed.zero={level}", name=f"z{level}.ptx")
            with self.subTest(level=level):
                self.assert_bitwise(self.train(path, "--device", "sim", ranks=2), self.train_on_gpus(path, 2, FT_FAKE_CUDA_SEED=level, FT_FAKE_NCCL_SEED=2))

    def test_pieces(self):
        """Pieces of a batch, whose collectives are on their way while kernels of others run: one CPU's numbers, and the same bits however
        late works and streams are."""
        recipe, tolerance = RECIPES["gpt"]
        source = recipe + f"  batch = {WHOLE}; seed = 5; epochs = 1; eval every {STEPS} steps; log {{ every = 1 steps }} }}\n"
        one = self.train(self.compile(source, name="one.so"))
        path = self.compile(source, "--set", "distributed.tensor=2", "--set", "distributed.pieces=2", name="pieces.ptx")
        truth = self.train_on_gpus(path, 2)
        self.assert_same(one, truth, tolerance)
        for more in of_cpus.by_turns((dict(FT_FAKE_CUDA_SEED=1, FT_FAKE_NCCL_SEED=1), dict(FT_FAKE_CUDA_NO_EDGES=1, FT_FAKE_CUDA_SEED=9)), 1):
            with self.subTest(**more):
                for name, value in self.train_on_gpus(path, 2, **more)[1].items():
                    numpy.testing.assert_array_equal(value, truth[1][name], err_msg=name)

    def test_stages(self):
        """Stages of a pipeline have the bits that they have in the simulator over MPI: messages between two GPUs."""
        deep = RECIPES["mlp"][0].replace('Linear(16, name="fc1")(x)', 'Linear(16, name="fc1")(gelu(Linear(12, name="b")(gelu(Linear(8, name="a")(x)))))')
        for turn, (stages, parts, chunks) in enumerate(((2, 4, 1), (2, 4, 2))):
            path = self.compile(deep + "  batch = 4; seed = 5; log { every = 1 steps } }\n", "--set", f"distributed.pipeline={stages}",
                                "--set", f"train.accumulate={parts}", "--set", f"distributed.interleave={chunks}", name=f"p{stages}-{chunks}.ptx")
            truth = self.train(path, "--device", "sim", ranks=stages)
            for more in of_cpus.by_turns(({}, dict(FT_FAKE_CUDA_SEED=2, FT_FAKE_NCCL_SEED=2), dict(FT_FAKE_CUDA_NO_EDGES=1, FT_FAKE_NCCL_SEED=4)), turn):
                with self.subTest(stages=stages, chunks=chunks, **more):
                    self.assert_bitwise(truth, self.train_on_gpus(path, stages, **more))

    def test_runs_beside_backward(self):
        """The graph has edges that let kernels run beside collectives, and a driver that takes no edges gets them by events."""
        path = self.compile(RECIPES["mlp"][0] + "  batch = 4; seed = 5; log { every = 1 steps } }\n", "--set", "distributed.data=any",
                            "--set", "distributed.bucket=0.0001", "--disable=join_launches", name="b.ptx")  # so that it has kernels enough
        for more in ({}, {"FT_FAKE_CUDA_NO_EDGES": 1}):
            self.train_on_gpus(path, 2, **more)
            report = self.report()
            self.assertGreater(report["collective"], 4)
            self.assertGreaterEqual(report["beside"], report["collective"] // 2, more)

    def test_a_gpu_alone(self):
        """A model for any number of ranks needs no NCCL on one GPU."""
        path = self.artifact("mlp", 1)
        self.assert_bitwise(self.train(path, "--device", "sim"), self.train_on_gpus(path, None, FT_NCCL_LIBRARY="/nowhere"))

    def fails(self, sentence, *flags, ranks=2, exit_code=3, seconds=90, path=None, **more):
        start = time.monotonic()
        done = self.start(path or self.artifact("mlp", ranks), "--device", "cuda", "--set", "distributed.timeout=8", *flags, ranks=ranks,
                          env=self.environment(**more), exit_code=exit_code)
        self.assertLess(time.monotonic() - start, seconds)
        said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertRegex(said[0], sentence)
        self.assertNotIn("fake", done.stderr)

    def test_what_nccl_says_is_told(self):
        for seed in range(8) if of_cpus.SOAK else (7,):
            chance = dict(FT_FAKE_CUDA_SEED=seed, FT_FAKE_NCCL_SEED=seed)
            self.fails(r"rank 1 \(host .*\): step \(.*\): NCCL: remote process exited or there was a network error", FT_FAKE_NCCL_FAIL="1:5:remote", **chance)
            self.fails(r"rank 0 \(host .*\): step \(.*\): NCCL: unhandled system error", FT_FAKE_NCCL_FAIL="0:3:system", **chance)
            self.fails(r"all 2 ranks have entered step #\d+ \(.*\) of step \d+, and it does not end for 8 s", FT_FAKE_NCCL_FAIL="1:4:hang", **chance)
        self.fails(r"rank 1 \(host .*\).*NCCL: .*: internal error", FT_FAKE_NCCL_FAIL="1:1:call")
        self.fails("NCCL does not start on rank 0: unhandled system error", FT_FAKE_NCCL_NO_ID=1)

    def test_the_library(self):
        self.fails("FT_NCCL_LIBRARY=/nowhere cannot be opened", exit_code=1, FT_NCCL_LIBRARY="/nowhere")
        self.fails("the NCCL here is version 2.8, and ftrun needs 2.18 or newer", exit_code=1, FT_FAKE_NCCL_VERSION=20800)
        self.fails("the NCCL here lacks ncclGetErrorString: ftrun needs version 2.18 or newer", exit_code=1, FT_NCCL_LIBRARY=DRIVER)
        self.fails("ranks 0 and 1 have the same GPU: each needs one of its own", "--device", "cuda:1", exit_code=1)
        self.fails("rank 2 is number 3 of the ranks on this machine, which has 2 GPUs: start as many ranks as there are GPUs", ranks=4,
                   exit_code=1, FT_FAKE_CUDA_COUNT=2)

    def test_a_lost_rank_ends_all(self):
        """Killed or stopped while a GPU waits for it: one sentence that names it, in time, and no process left."""
        path = self.artifact("mlp", 4)
        random = numpy.random.default_rng(int(os.environ.get("FT_SEED", 0)))
        for trial in range(60 if of_cpus.SOAK else 2):
            command = of_cpus.MPIRUN + ["-n", "4", of_cpus.FTRUN, path, "--device", "cuda", "--epochs", "1000000", "--set", "train.eval.every=0",
                                        "--set", "distributed.timeout=8"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, env={**os.environ, **self.environment()})
            for _ in range(30):
                process.stdout.readline()
            ranks = of_cpus.Joined.ranks_of(self, process)
            lost = int(random.integers(0, 4))
            time.sleep(random.random() * 0.3)
            os.kill(ranks[lost], signal.SIGSTOP if trial % 2 else signal.SIGKILL)
            start = time.monotonic()
            out, err = of_cpus.Joined.end_of(self, process)
            with self.subTest(trial=trial, lost=lost, stopped=trial % 2):
                self.assertLess(time.monotonic() - start, 90)
                self.assertNotEqual(process.returncode, 0)
                said = [line for line in err.splitlines() if line.startswith("error: ")]
                self.assertTrue(said, err)
                self.assertRegex(said[0], rf"\branks? (\d+, )*{lost}\b.* \(hosts? ")
                left = lambda: [rank for rank in ranks if os.path.exists(f"/proc/{rank}/exe")]
                while left() and time.monotonic() - start < 90:
                    time.sleep(0.1)
                self.assertEqual(left(), [])


class Gpus(Ptx):
    """Without MPI: the hosts talk by TCP, the GPUs by NCCL."""

    environment, report, assert_bitwise, train_on_gpus = Nccl.environment, Nccl.report, Nccl.assert_bitwise, Nccl.train_on_gpus

    def test_ftrun_starts_them(self):
        path = self.artifact("mlp", 2)
        one = self.train(self.artifact("mlp", 1, "so"))
        many = self.train(path, "--gpus", 2, env=self.environment(FT_FAKE_CUDA_SEED=2, FT_FAKE_NCCL_SEED=3))
        self.assert_same(one, many, RECIPES["mlp"][1])
        done = self.start(path, "--gpus=2", "--steps", 1, env=self.environment())
        self.assertRegex(done.stdout, r"on cuda:0 \(Fake GPU, sm_90\), CUDA 12\.4, NCCL 2\.27\.3; [\s\S]*ranks: 2 ranks on 1 machine, TCP\n")
        for wrong in (["--gpus", 0], ["--gpus", 2, "--ranks", 2], ["--gpus", "two"]):
            self.start(path, *wrong, exit_code=2)
        said = self.start(self.artifact("mlp", 2, "so"), "--gpus", 2, exit_code=2).stderr
        self.assertIn("is compiled for the CPU, where --ranks N starts processes", said)
        said = self.start(path, "--gpus", 3, env=self.environment(FT_FAKE_CUDA_COUNT=2), exit_code=1).stderr
        self.assertEqual(said.count("error: "), 1, said)
        self.assertIn("rank 2 is number 3 of the ranks on this machine, which has 2 GPUs", said)

    def start_long(self):
        command = [of_cpus.FTRUN, self.artifact("mlp", 2), "--gpus", "2", "--epochs", "1000000", "--set", "train.eval.every=0", "--set",
                   "distributed.timeout=8", "--set", "train.checkpoint.dir=ck"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, env={**os.environ, **self.environment()})
        for _ in range(30):
            process.stdout.readline()
        return process, sorted(map(int, subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()))

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process, ranks = self.start_long()
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, out[-500:] + err)
            self.assertIn("the same command with --resume ck goes on", out)

    def test_a_lost_rank_ends_all(self):
        for lost, number in ((1, signal.SIGKILL), (0, signal.SIGSTOP)):
            process, ranks = self.start_long()
            os.kill(ranks[lost], number)
            out, err = process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            said = [line for line in err.splitlines() if line.startswith("error: ")]
            self.assertRegex(said[0], rf"\brank {lost}\b.* \(host ")
            self.assertEqual([rank for rank in ranks if os.path.exists(f"/proc/{rank}/exe")], [])
        process, ranks = self.start_long()
        process.kill()  # ftrun itself: nobody is left behind
        process.wait()
        end = time.monotonic() + 20
        while [rank for rank in ranks if os.path.exists(f"/proc/{rank}/exe")] and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual([rank for rank in ranks if os.path.exists(f"/proc/{rank}/exe")], [])
        process.communicate()

    def test_torchrun(self):
        """torchrun itself has MASTER_PORT for its store. (-r and -t: with their defaults Debian's does not start on Python 3.11.)"""
        python = "/usr/bin/python3"
        if subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode:
            self.skipTest("no torchrun here: Debian's python3-torch")
        for target, device in (("ptx", "cuda"), ("so", "cpu")):
            one = self.train(self.artifact("mlp", 1, "so"))
            command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-r", "1", "-t", "1", "--log_dir", self.folder, "--no_python", of_cpus.FTRUN,
                       self.artifact("mlp", 2, target), "--device", device, "--steps", str(STEPS), "--log-jsonl", "log", "--save", "w"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, env={**os.environ, **self.environment()})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assert_same(one, (support.read_jsonl(self.path("log")), support.read_safetensors(self.path("w"))), RECIPES["mlp"][1])


if __name__ == "__main__":
    support.main()
