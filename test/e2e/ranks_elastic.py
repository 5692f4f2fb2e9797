"""ftrun --elastic: a rank is killed, fewer go on from the newest checkpoint and all after the next one, with the losses of one rank."""
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
LIMIT = 120
MODEL = """
model M(x: f32[B, 8], y: i32[B]) {
  loss = mean(cross_entropy(Linear(4, name="head")(x), y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = BATCH; seed = 5; optimizer = sgd(lr=0.05, weight_decay=0.01); epochs = 80; checkpoint { every = 50 steps }; log { every = 1 steps } }
"""


class Elastic(support.Case):
    def setUp(self):
        super().setUp()
        numbers = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), numbers.standard_normal((400, 8)).astype("f4"))
        numpy.save(self.path("y.npy"), numbers.integers(0, 4, 400).astype("i4"))
        with open(self.path("model.ft"), "w") as file:
            file.write(MODEL.replace("BATCH", "2"))

    def refused(self, code, sentence, *arguments):
        done = support.run("ftrun", *arguments, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, sentence)

    def test_refusals(self):
        for wrong in ("4", "4:2", "0:2", "two:3", "2:", "2:3x"):
            self.refused(2, f"--elastic {wrong}: expected LEAST:MOST ranks", "--elastic", wrong, "model.ft")
        self.refused(1, r"give it the .ft file, not model.so", "--elastic", "2:4", "model.so")
        self.refused(1, "goes on from checkpoints: set train.checkpoint.dir", "--elastic", "2:4", "model.ft")
        self.refused(1, r"--elastic 1:3: 2 ranks have a batch together \(distributed.tensor, distributed.pipeline\), and 3 is no multiple", "--elastic",
                     "1:3", "model.ft", "--set", "distributed.tensor=2", "--set", "train.checkpoint.dir=none")
        self.refused(2, "--elastic and --ranks or --gpus do not go together", "--elastic", "2:4", "--ranks", "2", "model.ft")
        os.mkdir(self.path("ck"))
        open(self.path("ck", "step-00000007.safetensors"), "w").close()
        self.refused(1, "ck holds a checkpoint of step 7 of a training before: --resume ck goes on", "--elastic", "2:4", "model.ft", "--set",
                     "train.checkpoint.dir=ck")

    def ranks(self):
        found = subprocess.run(["pgrep", "-f", f"^{re.escape(FTRUN)} .*{re.escape(self.path('log'))}$"], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def lose_a_rank(self, process, said, after):
        """Of four, after such a step and the first checkpoint, which may come many steps after its own."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and process.poll() is None:
            steps = [int(step) for step in re.findall(r"\bstep (\d+)/", open(said, errors="replace").read())]
            ranks = [pid for pid in self.ranks() if pid != process.pid]
            has_one = os.path.isdir(self.path("ck")) and any(name.endswith(".safetensors") for name in os.listdir(self.path("ck")))
            if max(steps, default=0) > after and len(ranks) == 4 and has_one:
                os.kill(ranks[2], signal.SIGKILL)
                return
            time.sleep(0.01)
        self.fail(f"no four ranks after step {after}: " + open(self.path("err")).read())

    def test_goes_on_with_fewer(self):
        if not hosts.HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        said = self.path("out")
        with open(said, "w") as out, open(self.path("err"), "w") as err:
            process = subprocess.Popen([FTRUN, "--elastic", "1:4", "model.ft", "--threads", "1", "--set", "train.checkpoint.dir=ck", "--save",
                                        "w.safetensors", "--log-jsonl", self.path("log")], cwd=self.folder, stdout=out, stderr=err)
            self.lose_a_rank(process, said, 60)
            code = process.wait(timeout=LIMIT)
        told = open(self.path("err")).read()
        self.assertEqual(code, 0, told)
        first = re.search(r"elastic: the 4 ranks have ended with code \d+; the training goes on from the checkpoint of step (\d+) with 2\n", told)
        again = re.search(r"elastic: from step (\d+) on with 4 ranks again\n", told)
        self.assertTrue(first and again, told)
        self.assertGreater(int(again[1]), int(first[1]))
        self.assertRegex(told, r"error: (step \d+: )?rank \d \(host ")  # without, where it was writing a checkpoint
        alone = self.compile(MODEL.replace("BATCH", "8"), name="one.so")
        support.run("ftrun", alone, "--log-jsonl", "one", "--save", "v.safetensors", cwd=self.folder)
        lines, expected = support.read_jsonl(self.path("log")), support.read_jsonl(self.path("one"))
        self.assertEqual([line["step"] for line in lines], list(range(1, 4001)))
        for line, one in zip(lines, expected):
            self.assertLess(abs(line["loss"] - one["loss"]), 2e-5, (line, one))
        weights, one = (support.read_safetensors(self.path(name)) for name in ("w.safetensors", "v.safetensors"))
        for name in one:
            numpy.testing.assert_allclose(weights[name], one[name], rtol=2e-5, atol=2e-5)

    def test_gpus(self):
        """On GPUs the ranks are started without MPI, and one that fails is done without."""
        fake = os.path.join(support.BUILD, "fake")
        env = dict(os.environ, FT_CUDA_LIBRARY=os.path.join(fake, "libfake_cuda.so"), FT_NCCL_LIBRARY=os.path.join(fake, "libfake_nccl.so"),
                   FT_CUBLASLT="own", FT_FAKE_CUDA_COUNT="3", FT_FAKE_CUDA_BAD="1", PATH=os.path.dirname(FTRUN))
        recipe = MODEL.replace("epochs = 80", "epochs = 8").replace("50 steps", "20 steps")
        support.run("ftrun", self.compile(recipe.replace("BATCH", "4"), name="one.so"), "--log-jsonl", "one", cwd=self.folder)
        with open(self.path("model.ft"), "w") as file:
            file.write(recipe.replace("BATCH", "2"))
        for visible in ("2,1,0", None) if os.environ.get("FT_SOAK") else (None,):
            env.pop("CUDA_VISIBLE_DEVICES", None)
            if visible:
                env["CUDA_VISIBLE_DEVICES"] = visible
            done = subprocess.run([FTRUN, "--elastic", "1:2", "model.ft", "--set", "train.checkpoint.dir=ck", "--save", "w.safetensors", "--log-jsonl",
                                   "log"], cwd=self.folder, env=env, capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"error: rank 1 \(host .*\): .*cuda:1")
            self.assertRegex(done.stderr, r"elastic: the 2 ranks have ended with code 3 before the first checkpoint; the training begins again with 1\n"
                             r"elastic: GPU 1, which the lost rank had, is taken last now\n")
            again = re.findall(r"elastic: from step \d+ on with 2 ranks again\n", done.stderr)
            self.assertTrue(again, done.stderr)
            self.assertEqual(len(again), 1)  # the third GPU is taken for the second
            self.assertEqual(done.stderr.count("is taken last now"), 1)
            self.assertIn("ranks: 2 ranks on 1 machine, TCP", done.stdout)
            lines, expected = support.read_jsonl(self.path("log")), support.read_jsonl(self.path("one"))
            self.assertEqual([line["step"] for line in lines], list(range(1, 801)))
            for line, one in zip(lines, expected):
                self.assertLess(abs(line["loss"] - one["loss"]), 2e-5, (line, one))
            shutil.rmtree(self.path("ck"))


if __name__ == "__main__":
    support.main()
