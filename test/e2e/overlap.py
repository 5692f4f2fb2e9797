"""What the trace shows of collectives: with a link that is slow (test/fake/engine/slow_engine.c), backward goes on while gradients
are added over the ranks. Nothing here depends on how long a kernel takes: a collective takes a fifth of a second."""
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import ranks
import support

SLOW = os.path.join(support.BUILD, "fake", "libslow_engine.so")
MPI = os.path.join(support.BUILD, "lib", "libft-mpi.so")
SMALL, ONE = "0.0002", "100"  # MiB of a bucket


@unittest.skipUnless(ranks.HAS_MPI and os.path.exists(SLOW) and os.path.exists(MPI), "no MPI: libft-mpi.so or mpirun is missing, or ninja unit_tests was not run")
class Overlap(ranks.Ranks):
    def setUp(self):
        super().setUp()
        for name in ("bin", "lib"):  # ftrun looks for its engine beside itself
            os.mkdir(self.path(name))
        shutil.copy(ranks.FTRUN, self.path("bin"))
        shutil.copy(SLOW, self.path("lib", "libft-mpi.so"))

    def train(self, bucket, latency=200000):
        """Events of a step, losses, and what is said."""
        path = self.compile(ranks.MLP, "--set", "distributed.data=any", "--set", f"distributed.bucket={bucket}")
        command = ranks.MPIRUN + ["-n", "2", self.path("bin", "ftrun"), path, "--steps", "1", "--trace", "t.json", "--log-jsonl", "log", "--set", "train.eval.every=0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, env=dict(os.environ, SLOW_ENGINE_OF=MPI, SLOW_ENGINE_LABEL="gradients of", SLOW_ENGINE_LATENCY=str(latency)))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(self.path("t.json")) as file:
            trace = json.load(file)
        events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        return events, [line["loss"] for line in support.read_jsonl(self.path("log"))], done.stdout, trace["otherData"]

    def gradients(self, events, category):
        return [e for e in events if e["cat"] == category and "gradients of" in e["name"]]

    def kernels_under_way(self, events, of):
        """Those that have ended while this collective had not, before anything was waited for."""
        end = min(of["ts"] + of["dur"], min(e["ts"] for e in events if e["cat"] == "end"))
        return [e for e in events if e["cat"] in ("launch", "call") and of["ts"] <= e["ts"] and e["ts"] + e["dur"] <= end]

    def test_backward_goes_on(self):
        events, slow, said, other = self.train(SMALL)
        begins, works, ends = (self.gradients(events, category) for category in ("begin", "communicate", "end"))
        self.assertGreater(len(begins), 1)
        self.assertEqual([e["name"] for e in begins], [e["name"] for e in works])
        self.assertEqual(sorted(e["name"] for e in begins), sorted(e["name"] for e in ends))
        during = self.kernels_under_way(events, works[0])
        backward = [e for e in during if e["ts"] < begins[1]["ts"]]
        self.assertTrue(backward, "no kernel ran while the first gradients were added over the ranks")
        for work, begin in zip(works, begins):
            end = next(e for e in ends if e["name"] == work["name"])
            self.assertLessEqual(begin["ts"], work["ts"])
            self.assertLessEqual(work["ts"], begin["ts"] + begin["dur"])
            self.assertLessEqual(work["ts"] + work["dur"], end["ts"] + end["dur"], "it was waited for until it ended")
        # side by side in the trace: what is under way at the same time lies in several threads
        threads = {}
        for work in sorted((e for e in events if e["cat"] == "communicate"), key=lambda e: e["ts"]):
            self.assertLessEqual(threads.get(work["tid"], 0), work["ts"] + 1e-3)
            threads[work["tid"]] = work["ts"] + work["dur"]
        self.assertGreater(min(threads), 1)
        self.assertRegex(said, r"\ntrace: communication takes [0-9.]+ ms a step, of which [0-9.]+ ms are exposed \([0-9]+ % hidden behind kernels\)\n")
        self.assertLessEqual(other["exposed_us"], other["communication_us"])
        self.assertAlmostEqual(other["hidden"], 1 - other["exposed_us"] / other["communication_us"], places=3)
        self.assertEqual(self.train(SMALL, latency=0)[1], slow)

    def test_one_bucket_hides_nothing(self):
        """What the test above looks for is not there where all gradients wait for the last one."""
        events = self.train(ONE)[0]
        (work,) = self.gradients(events, "communicate")
        self.assertEqual(self.kernels_under_way(events, work), [])


if __name__ == "__main__":
    support.main()
