"""Two machines for tests: network namespaces with names of their own, joined by a virtual cable. As root only."""
import os
import shutil
import signal
import subprocess
import unittest

import support

HAS_MPI = bool(shutil.which("mpirun")) and os.path.exists(os.path.join(support.BUILD, "lib", "libft-mpi.so"))
MACHINES = ["a", "b"]
NETWORK = "10.77.0"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True).returncode == 0


class Hosts:
    """A test's `cleanup` is its addCleanup; in `folder` lies what stands in for ssh."""

    def __init__(self, folder, cleanup):
        if not HAS_MPI:
            raise unittest.SkipTest("no Open MPI here: libopenmpi-dev, openmpi-bin")
        self.spaces = [f"ft{os.getpid()}{name}" for name in MACHINES]
        self.folder = folder
        if os.getuid() != 0 or not shutil.which("ip") or not ip("netns", "add", self.spaces[0]):
            raise unittest.SkipTest("no network namespaces here: they need root and ip")
        cleanup(self.clear)
        is_good = ip("netns", "add", self.spaces[1])
        if not ip("link", "add", "cable", "netns", self.spaces[0], "type", "veth", "peer", "name", "cable", "netns", self.spaces[1]):
            raise unittest.SkipTest("no virtual cables here (veth)")
        for i, space in enumerate(self.spaces):
            for words in (("addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "cable"), ("link", "set", "cable", "up"), ("link", "set", "lo", "up")):
                is_good = ip("-n", space, *words) and is_good
        if not is_good:
            raise AssertionError("cannot set up two network namespaces")
        self.agent = os.path.join(folder, "agent")
        with open(self.agent, "w") as file:
            file.write(f'#!/bin/sh\nshift\nexec ip netns exec {self.spaces[1]} unshare --uts sh -c "hostname machine-b; $*"\n')
        os.chmod(self.agent, 0o755)

    def pids(self):
        """Of what runs on both machines, without zombies."""
        pids = [int(pid) for space in self.spaces
                for pid in subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split()]
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]

    def clear(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for space in self.spaces:
            ip("netns", "del", space)

    def pull(self, state="down"):
        """The cable; "up" puts it back."""
        if not ip("-n", self.spaces[0], "link", "set", "cable", state):
            raise AssertionError(f"cannot set the cable {state}")

    def on(self, machine, *command):
        """The command, on the first machine or the second, under a name of its own: by their names ranks know who is on one."""
        return ["ip", "netns", "exec", self.spaces[machine], "unshare", "--uts", "sh", "-c", f'hostname machine-{MACHINES[machine]}; exec "$@"', "sh",
                *command]

    def start(self, *program, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
        """Four ranks, two on each machine."""
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "plm_rsh_agent", self.agent, "--mca", "btl",
                   "tcp,self", "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24", "--mca", "oob_tcp_if_include", f"{NETWORK}.0/24", "--host",
                   ",".join(f"{NETWORK}.{i + 1}:2" for i in range(2)), "-n", "4", *program]
        return subprocess.Popen(self.on(0, *command), stdout=stdout, stderr=stderr, text=True, cwd=self.folder)
