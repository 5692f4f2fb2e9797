"""Ranks on two machines, which are network namespaces here (test/hosts.py)."""
import os
import subprocess
import sys
import time
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

PROGRAM = os.path.join(support.BUILD, "unit", "comm_program")
HANG = 90
MODEL = """
model M(x: f32[B, 8]) {
  loss = mean(Linear(4, name="head")(x) ** 2)
}
data D { train = npy("x.npy") }
train { batch = 1; optimizer = sgd(lr=0.01); epochs = 1000000; checkpoint { every = 10 steps }; log { every = 1 steps } }
"""
TIMEOUT = 10  # seconds, and joining takes some where other tests run


class Joined(support.Case):
    def setUp(self):
        super().setUp()
        self.hosts = hosts.Hosts(self.folder, self.addCleanup)

    def finish(self, process):
        try:
            out, err = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out, err

    def test_cut_off(self):
        """The cable is pulled in the middle of a training: the job ends, also mpirun and its daemon, which would wait for each other for
        ever, and the checkpoint is good."""
        random = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), random.standard_normal((64, 8)).astype("f4"))
        model = self.compile(MODEL, "--set", "distributed.data=any")
        process = self.hosts.start(os.path.join(support.BUILD, "bin", "ftrun"), model, "--threads", "1", "--set", "distributed.timeout=10",
                             "--log-jsonl", "log", "--set", "train.checkpoint.dir=ck")
        for _ in range(30):
            self.assertTrue(process.stdout.readline())
        self.hosts.pull()
        start = time.monotonic()
        code, _, err = self.finish(process)
        self.assertNotEqual(code, 0)
        said = [line for line in err.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(said), 1, err)
        self.assertRegex(said[0], r"(nothing is heard from ranks 2, 3 \(hosts machine-b, machine-b\)|ranks? [123].* not entered .* and nothing is heard"
                         r"|does the network between them work).*step \d+")
        self.assertEqual(support.read_log(self.path("log"))[-1]["error"], said[0].removeprefix("error: "))
        while self.hosts.pids() and time.monotonic() - start < HANG:
            time.sleep(0.1)
        self.assertEqual(self.hosts.pids(), [])
        alone = self.compile(MODEL.replace("batch = 1", "batch = 4"))
        support.run("ftrun", alone, "--set", "train.checkpoint.dir=ck", "--resume", "ck", "--steps", "1", cwd=self.folder)

    def test_together(self):
        code, out, err = self.finish(self.hosts.start(PROGRAM, "fault", "nothing", str(TIMEOUT)))
        self.assertEqual(code, 0, err)
        self.assertIn("4 ranks on 2 machines, ", out)
        self.assertIn("all rounds", out)

    def test_many_elements(self):
        """Sums of so many that they go in parts, whole numbers so that they are exact."""
        random = numpy.random.default_rng(1)
        kinds = [("all_reduce", 40001, 1), ("all_reduce", 40000, 0), ("reduce_scatter", 40000, 0), ("all_gather", 10000, 1)]
        with open(self.path("cases"), "w") as file:
            file.writelines(f"{kind} 0 0 f32 {count} {in_place} 0\n" for kind, count, in_place in kinds)
        inputs = [[random.integers(-1000, 1000, count).astype("f4") for _ in range(4)] for _, count, _ in kinds]
        for i, ranks in enumerate(inputs):
            for rank, x in enumerate(ranks):
                x.tofile(self.path(f"x.{i}.{rank}"))
        code, out, err = self.finish(self.hosts.start(PROGRAM, "works", self.folder, "1", "0"))
        self.assertEqual(code, 0, err)
        for i, (kind, count, _) in enumerate(kinds):
            whole = numpy.concatenate(inputs[i]) if kind == "all_gather" else numpy.sum(inputs[i], axis=0)
            for rank in range(4):
                part = slice(rank * count // 4, (rank + 1) * count // 4) if kind == "reduce_scatter" else slice(None)
                got = numpy.fromfile(self.path(f"y.{i}.{rank}"), "f4")
                self.assertTrue(numpy.array_equal(got, whole[part]), f"rank {rank}: {kinds[i]}")

    def test_behind(self):
        code, _, err = self.finish(self.hosts.start(PROGRAM, "fault", "sleeps", str(TIMEOUT)))
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"said: rank 1 \(host machine-a\) has not entered all_reduce #6 \(gradients of h.3\) of step 6 for 10 s; it was last seen in step 6, round of faults; the other 3 wait")


if __name__ == "__main__":
    support.main()
