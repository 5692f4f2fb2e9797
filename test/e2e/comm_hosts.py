"""Ranks on two machines: network namespaces with names of their own, joined by a virtual cable, as root only."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

PROGRAM = os.path.join(support.BUILD, "unit", "comm_program")
HAS_MPI = shutil.which("mpirun") and os.path.exists(os.path.join(support.BUILD, "lib", "libft-mpi.so"))
HANG = 90
MACHINES = ["a", "b"]
TIMEOUT = 6


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0


class Hosts(support.Case):
    def setUp(self):
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
        folder = tempfile.mkdtemp(prefix="ft-hosts-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.agent = os.path.join(folder, "agent")  # in place of ssh
        with open(self.agent, "w") as file:
            file.write(f'#!/bin/sh\nshift\nexec ip netns exec {self.spaces[1]} unshare --uts sh -c "hostname machine-b; $*"\n')
        os.chmod(self.agent, 0o755)

    def clear(self):
        for space in self.spaces:
            for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", space)

    def start(self, what):
        network = "10.77.0.0/24"
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "btl",
                   "tcp,self", "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network, "--host",
                   "10.77.0.1:2,10.77.0.2:2", "-n", "4", PROGRAM, "fault", what, str(TIMEOUT)]
        return subprocess.Popen(["ip", "netns", "exec", self.spaces[0], "unshare", "--uts", "sh", "-c", 'hostname machine-a; exec "$@"', "sh",
                                 *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        try:
            out, err = process.communicate(timeout=HANG)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out, err

    def test_together(self):
        code, out, err = self.finish(self.start("nothing"))
        self.assertEqual(code, 0, err)
        self.assertIn("4 ranks on 2 machines, ", out)
        self.assertIn("all rounds", out)

    def test_behind(self):
        code, _, err = self.finish(self.start("sleeps"))
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"said: rank 1 \(host machine-a\) has not entered all_reduce #6 \(gradients of h.3\) of step 6 for 6 s; it was last seen in step 6, round of faults; the other 3 wait")


if __name__ == "__main__":
    support.main()
