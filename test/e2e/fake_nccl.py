"""The fake NCCL (test/fake/nccl) is stricter than the real one: each misuse ends the process with a word about it."""
import ctypes
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FAKE = os.path.join(support.BUILD, "fake")
DRIVER, NCCL = (os.path.join(FAKE, f"libfake_{name}.so") for name in ("cuda", "nccl"))
F32, F16, SUM, MAX = 7, 6, 0, 2


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def rank_main(what, rank, name):
    """One of two ranks, in a process of its own; rank 1 does `what`."""
    driver, nccl = ctypes.CDLL(DRIVER, ctypes.RTLD_GLOBAL), ctypes.CDLL(NCCL)
    context, stream, memory, comm = (ctypes.c_void_p() for _ in range(4))
    driver.cuInit(0)
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), rank)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxSetCurrent(context)
    driver.cuStreamCreate(ctypes.byref(stream), 1)
    driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096))
    host = ctypes.create_string_buffer(4096)
    assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, UniqueId(name.encode()), rank) == 0
    is_other = rank == 1

    def all_reduce(at=memory, count=64, dtype=F32, op=SUM, on=stream, of=comm):
        return nccl.ncclAllReduce(at, at, ctypes.c_size_t(count), dtype, op, of, on)
    if is_other and what == "abort":
        nccl.ncclCommAbort(comm)
    if is_other and what == "destroy":
        nccl.ncclCommDestroy(comm)
    if is_other and what == "group":
        nccl.ncclGroupStart()
    changed = {"count": dict(count=63), "type": dict(dtype=F16), "op": dict(op=MAX), "host": dict(at=host), "beyond": dict(count=2000),
               "stream": dict(on=None), "operation": dict(op=9)}.get(what, {}) if is_other else {}
    if is_other and what == "order":
        nccl.ncclBroadcast(memory, memory, ctypes.c_size_t(64), F32, 0, comm, stream)
    else:
        all_reduce(**changed)
    if is_other and what == "group":
        nccl.ncclCommDestroy(comm)
    driver.cuStreamSynchronize(stream)
    print("done")


IS_CHECKED = b"__asan_init" in subprocess.run(["nm", "-D", DRIVER], capture_output=True).stdout


@unittest.skipIf(IS_CHECKED, "the fakes have a sanitizer, which Python has not")
class Misuse(support.Case):
    def run_two(self, what):
        name = f"/ft-fake-nccl-test-{os.getpid()}-{what}"
        env = {**os.environ, "FT_CUDA_LIBRARY": DRIVER, "FT_FAKE_CUDA_COUNT": "2"}
        started = [subprocess.Popen([sys.executable, __file__, "rank", what, str(rank), name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, env=env) for rank in range(2)]
        out, err = started[1].communicate(timeout=60)
        if what == "nothing":
            self.assertEqual(started[0].communicate(timeout=60)[0], "done\n")
        started[0].kill()
        started[0].communicate()
        if os.path.exists("/dev/shm" + name):
            os.unlink("/dev/shm" + name)
        return started[1].returncode, out, err

    def test_right_use_is_let_be(self):
        self.assertEqual(self.run_two("nothing")[:2], (0, "done\n"))

    def test_misuse(self):
        for what, words in (("count", "rank 1 does all_reduce of 63 .*, and rank 0 all_reduce of 64"), ("type", "type 6.*type 7"),
                            ("op", "operation 2.*operation 0"), ("order", "rank 1 does broadcast .*, and rank 0 all_reduce"),
                            ("host", "is no memory of the GPU"), ("beyond", "reach beyond their allocation"), ("stream", "default stream"),
                            ("operation", "operation 9"), ("abort", "used that was aborted"), ("destroy", "used that was destroyed"),
                            ("group", "ncclGroupStart without its ncclGroupEnd")):
            with self.subTest(what=what):
                code, out, err = self.run_two(what)
                self.assertEqual((code, out), (-6, ""), err)
                self.assertRegex(err, words)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank_main(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        support.main()
