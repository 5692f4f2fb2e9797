"""Files that several ranks write together: they are one rank's, byte by byte, whatever the ranks share out; a rank that dies or cannot
write leaves the checkpoint before; folders that not all ranks see."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
MPIRUN = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
SAMPLES, WHOLE = 64, 8
# Tensors larger than what one rank takes of those that all have, small ones, and weights whose elements lie in memory in another order.
# With w of zeros every gradient is exactly zero: what the optimizer does then does not depend on an order of sums.
MODEL = """
model M(x: f32[B, 2, 6, 6], y: i32[B], w: f32[B]) {
  h = max_pool2d(relu(Conv2d(40, 3, padding=1, name="two")(relu(Conv2d(24, 3, padding=1, name="one")(x)))), 2)
  h = dropout(gelu(Linear(200, name="fc1")(flatten(h, from=1))), 0.2)
  h = h + Linear(200, name="fc2")(h)
  loss = mean(cross_entropy(Linear(4, name="head")(h), y) * w)
}
data D { train = npy("x.npy", "y.npy", "w.npy"); valid = npy("x.npy", "y.npy", "w.npy") }
train { optimizer = adamw(lr=0.01, weight_decay=0.1); ema = 0.9; clip = norm(0.5); batch = 8; seed = 5; epochs = 1000000; eval every 3 steps
  log { every = 1 steps }; checkpoint { every = 3 steps; keep = 2; best = min(valid.loss) } }
"""
# of data, zero, tensor; 8 samples a step in all of them
MESHES = [(4, 0, 1), (2, 3, 1), (4, 2, 1), (1, 0, 2), (2, 3, 2)]


class Files(support.Case):
    def setUp(self):
        super().setUp()
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        random = numpy.random.default_rng(0)
        for folder, weight in (("ones", 1), ("zeros", 0)):
            os.mkdir(self.path(folder))
            numpy.save(self.path(folder, "w.npy"), numpy.full(SAMPLES, weight, "f4"))
        x, y = random.standard_normal((SAMPLES, 2, 6, 6)).astype("f4"), random.integers(0, 4, SAMPLES).astype("i4")
        for folder in ("ones", "zeros"):
            numpy.save(self.path(folder, "x.npy"), x)
            numpy.save(self.path(folder, "y.npy"), y)

    def artifact(self, data, zero=0, tensor=1, source=MODEL):
        sets = {"train.batch": WHOLE // data, "distributed.data": data, "distributed.zero": zero, "distributed.tensor": tensor}
        return self.compile(source, *(word for of in sets.items() for word in ("--set", "%s=%s" % of)), name=f"m-{data}-{zero}-{tensor}.so")

    def train(self, path, ranks, *flags, data="ones", exit_code=0, prefix=(), by_rank=None):
        command = [*prefix, FTRUN, path, "--data", self.path(data), *map(str, flags)]
        if by_rank:
            command = [word for rank in range(ranks) for word in [":"] * bool(rank) + ["-n", "1", *by_rank(rank, command)]]
        else:
            command = ["-n", str(ranks), *command]
        done = subprocess.run(MPIRUN + command, capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, exit_code, done.stdout[-1000:] + done.stderr[-3000:])
        return done

    def read(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def test_files_are_those_of_one(self):
        """Checkpoints, the best, --save and --save-ema, after steps in which nothing depends on an order of sums."""
        self.train(self.artifact(1), 1, "--steps", 6, "--set", "train.checkpoint.dir=begin")

        def go_on(ranks, folder, *mesh):
            shutil.copytree(self.path("begin"), self.path(folder))
            os.remove(self.path(folder, "best.safetensors"))
            self.train(self.artifact(*mesh), ranks, "--steps", 11, "--resume", "begin", "--set", f"train.checkpoint.dir={folder}", "--save",
                       f"{folder}/w.safetensors", "--save-ema", f"{folder}/e.safetensors", data="zeros")

        go_on(1, "one", 1)
        names = sorted(name for name in os.listdir(self.path("one")) if name != ".lock")
        self.assertEqual(names, ["best.safetensors", "e.safetensors", "step-00000009.safetensors", "step-00000011.safetensors", "w.safetensors"])
        self.assertNotEqual(self.read("one", "w.safetensors"), self.read("one", "e.safetensors"))
        for mesh in MESHES:
            with self.subTest(mesh=mesh):
                go_on(mesh[0] * mesh[2], "many", *mesh)
                self.assertEqual(sorted(name for name in os.listdir(self.path("many")) if name != ".lock"), names)
                for name in names:
                    self.assertEqual(self.read("many", name), self.read("one", name), name)
                shutil.rmtree(self.path("many"))

    def test_a_rank_dies_while_it_writes(self):
        """The checkpoint before is whole, no other has its name, and the next training removes what is left."""
        big = MODEL.replace("200", "1400").replace("every = 3 steps; keep", "every = 2 steps; keep")
        for zero, lost in ((0, 1), (3, 0)):
            with self.subTest(zero=zero, lost=lost):
                path = self.artifact(2, zero, source=big)
                command = MPIRUN + ["-n", "2", FTRUN, path, "--data", self.path("ones"), "--set", "train.checkpoint.dir=ck", "--set", "train.eval.every=1000000"]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
                end = time.monotonic() + 60
                while not glob.glob(self.path("ck", "step-*.tmp")) or not glob.glob(self.path("ck", "step-*.safetensors")):
                    self.assertLess(time.monotonic(), end, "no checkpoint is written")
                    self.assertIsNone(process.poll(), "it has ended")
                ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
                os.kill(sorted(map(int, ranks))[lost], signal.SIGKILL)
                _, err = process.communicate(timeout=60)
                self.assertRegex(err, rf"error: .*rank {lost} \(host ")
                newest = sorted(glob.glob(self.path("ck", "step-*.safetensors")))[-1]
                step = int(re.search(r"step-(\d+)", newest)[1])
                done = self.train(self.artifact(1, source=big), 1, "--resume", "ck", "--steps", step + 1, "--set", "train.checkpoint.dir=ck")
                self.assertIn(f"resumed from ck/{os.path.basename(newest)}: step {step} of", done.stdout)
                self.assertEqual(glob.glob(self.path("ck", "*.tmp")), [])
                shutil.rmtree(self.path("ck"))

    def test_one_rank_cannot_write(self):
        """Its sentence is told once, the checkpoint before is whole, and nothing else is left."""
        for zero in (0, 3):
            path = self.artifact(2, zero)
            self.train(path, 2, "--steps", 3, "--set", "train.checkpoint.dir=ck")
            before = sorted(os.listdir(self.path("ck")))
            limit = lambda rank, command: (["prlimit", "--fsize=2000"] if rank == 1 else []) + command  # instead of a full disk
            done = self.train(path, 2, "--resume", "ck", "--steps", 6, "--set", "train.checkpoint.dir=ck", exit_code=3, by_rank=limit)
            said = [line for line in done.stderr.splitlines() if line.startswith("error")]
            self.assertEqual(len(said), 1, done.stderr)
            self.assertRegex(said[0], r"^error: rank 1 \(host .*\): cannot write ck/(step-00000006|best).safetensors: File too large; nor could a "
                             r"checkpoint be written to \. or .*; the checkpoint of step 3 is whole")
            self.assertEqual(sorted(os.listdir(self.path("ck"))), before)
            self.assertEqual(glob.glob(self.path("*.kept-*")) + glob.glob(self.path("*.tmp")), [])
            shutil.rmtree(self.path("ck"))

    def test_what_cannot_be_written_goes_elsewhere(self):
        """So it does where each rank has a part: none of the steps is lost."""
        one = self.artifact(1)
        for zero, flags in ((3, ()), (3, ("--save", "gone/w.safetensors"))):
            os.mkdir(self.path("gone"))
            path = self.artifact(2, zero)
            command = MPIRUN + ["-n", "2", FTRUN, path, "--data", self.path("ones"), "--set", "train.checkpoint.every=100000", "--set",
                                "train.eval.every=1000000", "--set", f"train.checkpoint.dir={'ck' if flags else 'gone'}", *flags]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
            for line in process.stdout:
                if "step 3/" in line:
                    break
            os.rename(self.path("gone"), self.path("was"))
            with open(self.path("gone"), "w"):
                pass
            ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
            os.kill(int(ranks[0]), signal.SIGTERM)
            _, err = process.communicate(timeout=60)
            self.assertEqual(err.count("error: "), 1, err)
            told = re.search(r"error: cannot .*; (?:a checkpoint|the weights) of step (\d+): (\./\S+\.kept-\d+\.safetensors)", err)
            self.assertTrue(told, err)
            go_on = ["--init", told[2]] if flags else ["--resume", told[2]]
            done = self.train(one, 1, *go_on, "--steps", int(told[1]) + 1, "--set", "train.checkpoint.dir=")
            if not flags:
                self.assertIn(f"step {told[1]} of", done.stdout)
            for name in ("gone", told[2]):
                os.remove(self.path(name))
            shutil.rmtree(self.path("was"))
            shutil.rmtree(self.path("ck"), ignore_errors=True)

    def test_a_folder_that_not_all_see(self):
        """Said before the first step: rank 0 writes alone where it has all, and where it has not the job ends."""
        for folder in "ab":
            os.mkdir(self.path(folder))
        apart = lambda rank, command: ["-wdir", self.path("ab"[rank]), *command]
        flags = ["--steps", 3, "--set", "train.checkpoint.dir=ck", "--save", "w.safetensors"]
        done = self.train(self.artifact(2), 2, *flags, by_rank=apart)
        self.assertRegex(done.stdout, r"rank 1 \(host .*\): the folder ck is not where rank 0 has it: rank 0 writes all files alone\n")
        self.assertEqual(sorted(os.listdir(self.path("a"))), ["ck", "w.safetensors"])
        self.assertEqual(sorted(os.listdir(self.path("a", "ck"))), ["best.safetensors", "step-00000003.safetensors"])
        self.assertEqual(os.listdir(self.path("b")), [])
        self.train(self.artifact(1), 1, "--resume", "a/ck", "--steps", 4, "--set", "train.checkpoint.dir=")
        shutil.rmtree(self.path("a"))
        os.mkdir(self.path("a"))
        done = self.train(self.artifact(2, 3), 2, *flags, by_rank=apart, exit_code=1)
        said = [line for line in done.stderr.splitlines() if line.startswith("error")]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertRegex(said[0], r"^error: rank 1 \(host .*\): the folder ck is not where rank 0 has it: each rank has a part of the parameters .* must "
                         "name folders of a disk that all machines share")
        self.assertEqual(os.listdir(self.path("b")), [])
        self.assertEqual(glob.glob(self.path("a", "**", "*try*"), recursive=True), [])


if __name__ == "__main__":
    support.main()
