"""Several ranks without MPI, by torchrun's variables: every kind of work, type and operation, and what is said when a rank dies,
stops or does something else, as comm.py has it over MPI; and who comes to the port that is no rank of the job."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support
import comm as over_mpi

PROGRAM = over_mpi.PROGRAM
over_mpi.FAULTS = [(4, "dies"), (4, "stops"), (4, "other"), (4, "absent"), (4, "nothing")]
LEFT_OUT = ("test_slow_is_not_wrong", "test_dead_rank_0", "test_stopped_rank_0", "test_behind", "test_leaves", "test_fails", "test_works_in_pieces",
            "test_works_of_four")


def free_port():
    """One with some free ones behind it, most likely."""
    with socket.socket() as one:
        one.bind(("", 0))
        return min(one.getsockname()[1], 65000)


def variables(rank, ranks, port, **more):
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), **{name: str(value) for name, value in more.items()}}


class Tcp(over_mpi.Comm):
    def setUp(self):
        if self._testMethodName in LEFT_OUT:
            self.skipTest("over MPI only")
        self.folder = tempfile.mkdtemp(prefix="ft-comm-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def mpirun(self, ranks, what, *arguments, port=None, **more):
        """Nobody ends the others when one has failed: they do so themselves."""
        if what not in ("works", "speed", "gpu", "stages"):
            arguments = (what, *arguments)
            what = "fault"
        port = port or free_port()
        command = [PROGRAM, what, *map(str, arguments)]
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables(rank, ranks, port, **more))
                   for rank in range(ranks)]
        end = time.monotonic() + over_mpi.HANG
        while any(p.poll() is None for p in started) and time.monotonic() < end:
            if what == "fault" and arguments[0] in ("stops", "absent") and all(p.poll() is not None for p in started if p is not started[1]):
                started[1].kill()  # nobody else would
            time.sleep(0.05)
        for process in started:
            process.kill()
        said = [process.communicate() for process in started]
        codes = [process.returncode for process in started]
        return max(codes) or min(codes), "".join(out for out, _ in said), "".join(err for _, err in said)

    def test_the_store_of_torchrun_has_the_port(self):
        """And strangers come to the one behind it, who say nothing, or something else."""
        with socket.socket() as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("", 0))
            store.listen(16)
            port = store.getsockname()[1]
            is_over = threading.Event()

            def disturb():
                for word in [b"", b"GET / HTTP/1.1\r\n\r\n", b"ft-rank1" + b"\xff" * 24, b"ft-rank1" + bytes(24), os.urandom(4000)] * 20:
                    if is_over.is_set():
                        return
                    try:
                        with socket.create_connection(("localhost", port + 1), 0.2) as stranger:
                            stranger.sendall(word)
                            time.sleep(0.02)
                    except OSError:
                        time.sleep(0.02)
            thread = threading.Thread(target=disturb)
            thread.start()
            code, out, err = self.mpirun(3, "nothing", over_mpi.TIMEOUT, port=port)
            is_over.set()
            thread.join()
            self.assertEqual(code, 0, err)
            self.assertIn("all rounds", out)


FAKE = os.path.join(support.BUILD, "fake")


def plain(random, dtype, count):
    """Without what NCCL has its own ways with: NaN, infinities, the sign of 0."""
    values = over_mpi.some_of_all(random, dtype, count)
    if dtype not in ("f16", "bf16", "f32", "f64"):
        return values
    wide = over_mpi.widen(values) if dtype == "bf16" else values.astype(np.float64)
    wide = np.where(np.isfinite(wide) & (wide != 0), wide, 1.0)
    return over_mpi.narrow(wide.astype(np.float32)) if dtype == "bf16" else wide.astype(over_mpi.TYPES[dtype])


class Gpus(Tcp):
    """The same works by NCCL (test/fake) on GPUs."""

    def setUp(self):
        if not self._testMethodName.startswith("test_gpu"):
            self.skipTest("of hosts")
        super().setUp()
        over_mpi.some_of_all = over_mpi.some
        over_mpi.some = plain
        self.addCleanup(setattr, over_mpi, "some", over_mpi.some_of_all)

    def mpirun(self, ranks, *arguments):
        return super().mpirun(ranks, *arguments, FT_CUDA_LIBRARY=os.path.join(FAKE, "libfake_cuda.so"), FT_FAKE_CUDA_COUNT=4,
                              FT_NCCL_LIBRARY=os.path.join(FAKE, "libfake_nccl.so"), FT_FAKE_CUDA_SEED=3)

    def test_gpu_works(self):
        self.works(2, 0, 11, what="gpu")
        self.works(4, 0, 12, what="gpu")

    def test_gpu_works_of_groups(self):
        self.works(4, 0, 13, (2, 1, 2), what="gpu")


class Alone(support.Case):
    def start(self, rank, ranks, **more):
        env = variables(rank, ranks, more.pop("port", 1234))
        for name, value in more.items():
            env.pop(name) if value is None else env.update({name: str(value)})
        return subprocess.Popen([PROGRAM, "fault", "nothing", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def end(self, process):
        out, err = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        return out + err

    def test_variables(self):
        for more, words in ((dict(MASTER_ADDR=None), "RANK and WORLD_SIZE are set, and MASTER_ADDR is not: it says where rank 0 is"),
                            (dict(MASTER_PORT=None), "and MASTER_PORT is not"), (dict(MASTER_PORT="x1"), "MASTER_PORT=x1: expected a number from 1 to 65519"),
                            (dict(MASTER_PORT="65530"), "expected a number from 1 to"), (dict(MASTER_ADDR="no.such.host.invalid"), "is not found")):
            self.assertIn(words, self.end(self.start(1, 2, **more)), more)

    def test_ranks_that_do_not_fit(self):
        port = free_port()
        first = self.start(0, 3, port=port)
        self.assertRegex(self.end(self.start(1, 2, port=port)), r"rank 0 at localhost:\d+ is one of 3 ranks, and WORLD_SIZE here is 2")
        second = self.start(1, 3, port=port)
        time.sleep(0.5)
        self.assertRegex(self.end(self.start(1, 3, port=port)), r"rank 0 at localhost:\d+ has another rank 1 \(RANK\)")
        self.assertIn("rank 2 of 3 has not come within 3 s", self.end(first))
        second.kill()
        second.communicate()


if __name__ == "__main__":
    support.main()
