"""Ranks on two machines: network namespaces with names of their own, joined by a virtual cable, as root only."""
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

PROGRAM = os.path.join(support.BUILD, "unit", "comm_program")
HAS_MPI = shutil.which("mpirun") and os.path.exists(os.path.join(support.BUILD, "lib", "libft-mpi.so"))
HANG = 90
MODEL = """
model M(x: f32[B, 8]) {
  loss = mean(Linear(4, name="head")(x) ** 2)
}
data D { train = npy("x.npy") }
train { batch = 1; optimizer = sgd(lr=0.01); epochs = 1000000; checkpoint { every = 10 steps }; log { every = 1 steps } }
"""
MACHINES = ["a", "b"]
TIMEOUT = 6


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0


class Hosts(support.Case):
    def setUp(self):
        super().setUp()
        if not HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        self.spaces = [f"ft{os.getpid()}{name}" for name in MACHINES]
        if os.getuid() != 0 or not shutil.which("ip") or not ip("netns", "add", self.spaces[0]):
            raise unittest.SkipTest("no network namespaces here: they need root and ip")
        self.addCleanup(self.clear)
        self.assertTrue(ip("netns", "add", self.spaces[1]))
        if not ip("link", "add", "cable", "netns", self.spaces[0], "type", "veth", "peer", "name", "cable", "netns", self.spaces[1]):
            raise unittest.SkipTest("no virtual cables here (veth)")
        for i, space in enumerate(self.spaces):
            for words in (("addr", "add", f"10.77.0.{i + 1}/24", "dev", "cable"), ("link", "set", "cable", "up"), ("link", "set", "lo", "up")):
                self.assertTrue(ip("-n", space, *words))
        self.agent = self.path("agent")  # in place of ssh
        with open(self.agent, "w") as file:
            file.write(f'#!/bin/sh\nshift\nexec ip netns exec {self.spaces[1]} unshare --uts sh -c "hostname machine-b; $*"\n')
        os.chmod(self.agent, 0o755)

    def clear(self):
        for space in self.spaces:
            for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", space)

    def start(self, *program):
        network = "10.77.0.0/24"
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "btl",
                   "tcp,self", "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network, "--host",
                   "10.77.0.1:2,10.77.0.2:2", "-n", "4", *program]
        return subprocess.Popen(["ip", "netns", "exec", self.spaces[0], "unshare", "--uts", "sh", "-c", 'hostname machine-a; exec "$@"', "sh",
                                 *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

    def finish(self, process):
        try:
            out, err = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out, err

    def processes(self):
        """Of both machines, without zombies."""
        pids = [pid for space in self.spaces for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split()]
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]

    def test_cut_off(self):
        """The cable is pulled in the middle of a training: the job ends, also mpirun and its daemon, which would wait for each other for
        ever, and the checkpoint is good."""
        random = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), random.standard_normal((64, 8)).astype("f4"))
        model = self.compile(MODEL, "--set", "distributed.data=any")
        process = self.start(os.path.join(support.BUILD, "bin", "ftrun"), model, "--threads", "1", "--set", "distributed.timeout=3",
                             "--log-jsonl", "log", "--set", "train.checkpoint.dir=ck")
        for _ in range(30):
            self.assertTrue(process.stdout.readline())
        self.assertTrue(ip("-n", self.spaces[0], "link", "set", "cable", "down"))
        start = time.monotonic()
        code, _, err = self.finish(process)
        self.assertNotEqual(code, 0)
        said = [line for line in err.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(said), 1, err)
        self.assertRegex(said[0], r"(nothing is heard from ranks 2, 3 \(hosts machine-b, machine-b\)|ranks? [123].* not entered .* and nothing is heard"
                         r"|does the network between them work).*step \d+")
        self.assertEqual(support.read_jsonl(self.path("log"))[-1]["error"], said[0].removeprefix("error: "))
        while self.processes() and time.monotonic() - start < HANG:
            time.sleep(0.1)
        self.assertEqual(self.processes(), [])
        alone = self.compile(MODEL.replace("batch = 1", "batch = 4"))
        support.run("ftrun", alone, "--set", "train.checkpoint.dir=ck", "--resume", "ck", "--steps", "1", cwd=self.folder)

    def test_together(self):
        code, out, err = self.finish(self.start(PROGRAM, "fault", "nothing", str(TIMEOUT)))
        self.assertEqual(code, 0, err)
        self.assertIn("4 ranks on 2 machines, ", out)
        self.assertIn("all rounds", out)

    def test_behind(self):
        code, _, err = self.finish(self.start(PROGRAM, "fault", "sleeps", str(TIMEOUT)))
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"said: rank 1 \(host machine-a\) has not entered all_reduce #6 \(gradients of h.3\) of step 6 for 6 s; it was last seen in step 6, round of faults; the other 3 wait")


if __name__ == "__main__":
    support.main()
