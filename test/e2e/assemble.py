"""ptxas takes the artifacts of all examples for each GPU and each precision, and no kernel spills registers or has
a stack. Every day some of them; with --soak (FT_SOAK) all: every example and every preset of gpt2 with two
layers, in f32, tf32, bf16, fp16 and fp8, for sm_80, sm_89, sm_90 and sm_90a. Skipped where ptxas is not installed."""
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

EXAMPLES = ["autoencoder", "fashion_cnn", "fashion_mlp", "gpt_bytes", "regression", "resnet18", "resnet_tiny"]
PRESETS = ["124M", "350M", "774M", "1558M"]
GPUS = ["sm_80", "sm_89", "sm_90", "sm_90a"]
PRECISIONS = ["f32", "tf32", "bf16", "fp16", "fp8"]


def some(models):
    """(model, GPU, precision) of an everyday run: each GPU and each precision, not each pair; with FT_TURN half of them."""
    if os.environ.get("FT_SOAK"):
        return [(model, gpu, precision) for model in models for gpu in GPUS for precision in PRECISIONS]
    return [(model, *pair) for first, model in enumerate(("regression", "124M")) if model in models
            for i, pair in enumerate((("sm_80", "fp16"), ("sm_89", "fp8"), ("sm_90a", "bf16"), ("sm_90a", "fp8"))) if support.has_its_turn(first + i, 2)]


@unittest.skipUnless(shutil.which("ptxas"), "ptxas is not installed")
class Assemble(support.Case):
    def assemble(self, source, gpu, *flags):
        """Kernels that do not keep all in registers."""
        artifact = self.compile(source if "\n" in source else os.path.join(support.EXAMPLES, source + ".ft"), "--gpu", gpu, *flags, name="model.ptx")
        done = subprocess.run(["ptxas", "-v", f"-arch={gpu}", artifact, "-o", self.path("model.cubin")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[:2000])
        kernel, bad, seen = None, [], 0
        for line in done.stderr.splitlines():
            entry = re.search(r"Compiling entry function '(\w+)'", line)
            if entry:
                kernel, seen = entry[1], seen + 1
            found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
            if not found:
                continue
            stack, stores, loads = map(int, found.groups())
            if stack or stores or loads:
                bad.append(f"{kernel}: {line.strip()}")
        self.assertGreater(seen, 0)
        self.assertNotRegex(done.stderr, "serialized")  # wgmma that waits for the one before
        return bad

    def check(self, cases):
        for model, gpu, precision in cases:
            flags = ["--set", f"train.precision={precision}"]
            source = model
            if model in PRESETS:
                source, flags = "gpt2", [*flags, "--preset", model, "-D", "L=2", "--set", "train.batch=4"]
            with self.subTest(model=model, gpu=gpu, precision=precision):
                self.assertEqual(self.assemble(source, gpu, *flags), [])

    def test_whole_numbers(self):
        """Products of integers: of few rows, in parts of k, and of tiles with as many sums as a thread has room for."""
        text = """model M(x: f32[B, 1024], y: f32[B, 4]) {
  z = QuantLinear(4, signed_input=false, name="b")(relu(QuantLinear(2048, bits=4, name="a")(x)))
  output z
  loss = mean((z - y) ** 2)
}
data D { train = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = BATCH; optimizer = sgd(lr=0.1) }
"""
        for i, (gpu, batch) in enumerate((("sm_80", 4096), ("sm_89", 16), ("sm_90a", 1024))):
            if not support.has_its_turn(i, 3):
                continue
            with self.subTest(gpu=gpu, batch=batch):
                self.assertEqual(self.assemble(text.replace("BATCH", str(batch)), gpu), [])

    def test_examples(self):
        self.check(some(EXAMPLES))

    def test_gpt2(self):
        self.check(some(PRESETS))


if __name__ == "__main__":
    support.main()
