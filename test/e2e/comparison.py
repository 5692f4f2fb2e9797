"""bench/gpu.sh as on a GPU, with small sizes, on the fake driver: every unit says what it found, and what fails (a
kernel, an artifact, a peer, the memory, the time) leaves the rest and is in the results. The peers are stood in for:
real ones need a newer PyTorch than tests may ask for (bench/gpu.sh rehearse runs those)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

sys.path.insert(0, os.path.join(support.ROOT, "bench", "gpu"))
import cases
import smoke
import summary
from side import Side, Sides

# what each peer does: its first argument
STAND_IN = '''
import json, os, sys, time
peer, folder = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
if peer == "jax":
    print(json.dumps({"missing": "no JAX here"}))
elif peer == "autotune":
    time.sleep(600 if os.environ.get("HANG") else 0)
    sys.exit("this one broke")
elif peer == "compile" and not os.path.exists(os.path.join(folder, "again")):
    open(os.path.join(folder, "again"), "w").close()
    print(json.dumps({"failed": "CUDA out of memory"}))
else:
    print("ready", flush=True)
    assert sys.stdin.readline() == "go\\n"
    print(json.dumps({"ms": 2.0 if peer == "eager" else 4.0, "low": 1.0, "high": 5.0, "steps": 10, "memory": 1 << 20}))
'''


class Comparison(unittest.TestCase):
    """One pack serves all; each test has its own state."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="ft-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = os.path.join(temporary.name, "pack")
        cls.stand_in = os.path.join(temporary.name, "peers.py")
        with open(cls.stand_in, "w") as file:
            file.write(STAND_IN)

    def rehearse(self, *words, **environment):
        shutil.rmtree(os.path.join(self.folder, "state"), ignore_errors=True)
        given = dict(os.environ, FT_BUILD=support.BUILD, PYTHON=sys.executable, FT_REHEARSAL=self.folder, FT_PEERS=self.stand_in, FT_CASES="mlp-64", LLMC="", **environment)
        self.done = subprocess.run([os.path.join(support.ROOT, "bench", "gpu.sh"), "rehearse", *words], capture_output=True, text=True, env=given)
        with open(os.path.join(self.folder, "out", "gpu.json")) as file:
            self.result = json.load(file)
        with open(os.path.join(self.folder, "out", "results.md")) as file:
            self.markdown = file.read()
        return self.done.stdout + self.done.stderr

    def test_1_everything_runs(self):
        said = self.rehearse("smoke", "kernels", "--no-peers")
        self.assertEqual(self.done.returncode, 0, said[-4000:])
        self.assertIn("\n0 failed", said)
        self.assertEqual(set(self.result["features"]), set(cases.TINY_PROBES))
        self.assertEqual(set(self.result["smoke"]["mlp-64"]), set(smoke.WAYS))
        self.assertLess(self.result["smoke"]["mlp-64"]["cuBLASLt"], 1e-5)
        for needle in ("cross entropy 50257 ", "adamw ", "of the copy", "TFLOP/s forward", "product bf16 8192", "── mlp-64", "starts in "):
            self.assertIn(needle, said)
        for needle in ("| adamw |", "| 64, T 1024, causal |", "| bf16 8192 |", "A rehearsal", "have the simulator's losses", "| PTX in one piece |"):
            self.assertIn(needle, self.markdown)

    def test_2_what_fails_leaves_the_rest(self):
        artifact = cases.artifact(os.path.join(self.folder, "artifacts"), "mlp-64", "sm_90a")
        with open(artifact) as file:
            whole = file.read()
        with open(artifact, "w") as file:
            file.write(whole[: len(whole) // 2])
        said = self.rehearse("mlp-64")
        self.assertEqual(self.done.returncode, 1, said)
        case = self.result["cases"]["mlp-64"]
        self.assertIsInstance(case["ft"]["own kernels, sm_90a"], str)
        self.assertEqual(case["ft_by"], "own kernels, sm_80")
        self.assertEqual(case["peers"]["eager"]["ms"], 2.0)
        self.assertEqual(case["peers"]["compile"]["ms"], 4.0)  # tried again, alone
        self.assertEqual(case["peers"]["autotune"]["failed"], "this one broke")
        self.assertEqual(case["peers"]["jax"]["missing"], "no JAX here")
        self.assertAlmostEqual(case["ratio"], 2.0 / case["ft_ms"])
        for needle in ("| torch max-autotune | this one broke |", "## What failed", "**ft**, own kernels, sm_80"):
            self.assertIn(needle, self.markdown)

    def test_3_a_peer_that_never_gets_ready(self):
        os.environ.update(HANG="1", FT_PEERS=self.stand_in)
        self.addCleanup(lambda: [os.environ.pop(name) for name in ("HANG", "FT_PEERS")])
        told, folder = [], os.path.dirname(self.stand_in)
        sides = Sides([Side("mlp-64", peer, True, "cpu", 1, folder) for peer in ("autotune", "eager")])
        sides.measure_all(time.monotonic() + 2, told.append)
        self.assertEqual([side.peer for side in told], ["eager", "autotune"])
        self.assertEqual(told[0].found["ms"], 2.0)
        self.assertEqual(told[1].found, {"failed": "was not ready in time"})

    def test_4_without_a_gpu_one_sentence(self):
        said = self.rehearse("smoke", FT_CUDA_LIBRARY="/nowhere/libcuda.so")
        self.assertEqual(self.done.returncode, 1)
        self.assertIn("\n1 failed", said)
        self.assertIn("FT_CUDA_LIBRARY=/nowhere/libcuda.so cannot be opened", said)


class Switches(unittest.TestCase):
    RESULT = {"features": {"one kernel": "", "graph": "losses 1.0 apart", "wgmma": "CUDA_ERROR_LAUNCH_FAILED", "joined launches": "losses 0.1 apart", "cuBLASLt": ""},
              "machine": {"seen by ftrun": "NVIDIA H100 80GB HBM3, sm_90, 132 processors"}}

    def may_use(self, target, *kernels):
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(f".target {target}\n" + "".join(f".visible .entry {name}(\n{body}\n" for name, body in kernels))
            file.flush()
            return smoke.may_use(self.RESULT, file.name)

    def test_what_failed_is_switched_off(self):
        self.assertEqual(smoke.switches(self.RESULT), {"FT_CUDA_NO_GRAPH": "1"})
        self.assertTrue(self.may_use("sm_90a", ("k0_loop", "add.f32"), ("k1_one_attention", "wgmma.mma_async.sync")))
        self.assertFalse(self.may_use("sm_90a", ("k0_loop", "add.f32"), ("k1_one_dot", "wgmma.mma_async.sync")))
        self.assertTrue(self.may_use("sm_90a", ("k1_one_dot", "mma.sync")))
        self.assertFalse(self.may_use("sm_90a", ("join0_k0_k1", "add.f32")))
        self.assertFalse(self.may_use("sm_100a", ("k0_loop", "add.f32")))
        self.assertTrue(self.may_use("sm_80", ("k0_loop", "add.f32")))

    def test_how_far_losses_are_apart(self):
        self.assertEqual(cases.apart([2.0, 1.0], [2.0, 1.0]), 0)
        self.assertAlmostEqual(cases.apart([2.0, 1.1, 1.0], [2.0, 1.0, 1.0]), 0.1)
        self.assertAlmostEqual(cases.apart([2.0, 1.0, 1.0, 1.4], [2.0, 1.0, 1.0, 1.0]), 0.1)
        for other in ([2.0], [2.0, float("nan")]):
            self.assertEqual(cases.apart(other, [2.0, 1.0]), float("inf"))

    def test_results_of_two_calls_are_one(self):
        first = {"features": {"a": ""}, "failures": ["x"], "done": {"smoke": 1.0}}
        second = {"features": {"b": "no"}, "failures": ["x", "y"], "done": {"suite": 2.0}}
        whole = summary.merge([first, second])
        self.assertEqual(whole["failures"], ["x", "y"])
        text = summary.markdown(whole)
        self.assertIn("As the simulator has it: a.", text)
        self.assertIn("- **b**: no", text)
        self.assertIn("smoke 1, suite 2", text)


if __name__ == "__main__":
    support.main()
