"""Waits that never end: kernels of `ftc --debug-waits` give up and say where, in the simulator and on the (fake) GPU, and the host gives
up a GPU that does not end its work after train.timeout; each with one sentence, exit code 3, and the last checkpoint whole."""
import os
import re
import shutil
import sys

import numpy

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cuda
import support

MODEL = """model Wide(x: f32[B, 64], y: i32[B]) {
  x = relu(Linear(2048, name="one")(x))
  loss = mean(cross_entropy(Linear(8, name="fc")(x), y))
}
data D { train = npy("x.npy", "y.npy") }
train { model = Wide; data = D; batch = 2048; epochs = 1; seed = 3; optimizer = sgd(lr=0.1); precision = bf16 }
"""
ATTENTION = """model Texts(x: f32[B, 256, 64], y: i32[B]) {
  q = reshape(Linear(64, name="q")(x), [B, 1, 256, 64])
  k = reshape(Linear(64, name="k")(x), [B, 1, 256, 64])
  a = attention(q, k, reshape(Linear(64, name="v")(x), [B, 1, 256, 64]))
  loss = mean(cross_entropy(Linear(8, name="fc")(mean(reshape(a, [B, 256, 64]), axis=1)), y))
}
data D { train = npy("t.npy", "z.npy") }
train { model = Texts; data = D; batch = 2; epochs = 1; seed = 3; optimizer = sgd(lr=0.1); precision = bf16 }
"""
EXPECT = re.compile(r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%r\d+\], (%r\d+);")


class Waits(cuda.CudaCase):
    def setUp(self):
        super().setUp()
        draw = numpy.random.default_rng(3)
        numpy.save(self.path("x.npy"), draw.standard_normal((4096, 64), dtype="f4"))
        numpy.save(self.path("t.npy"), draw.standard_normal((4, 256, 64), dtype="f4"))
        numpy.save(self.path("z.npy"), numpy.arange(4, dtype="i4"))
        numpy.save(self.path("y.npy"), numpy.arange(4096, dtype="i4") % 8)

    def text(self, path):
        with open(path) as file:
            return file.read()

    def spoil(self, path, kernel):
        """The kernel expects 16 bytes more than are copied, so that a phase never ends."""
        text = self.text(path)
        begin = re.search(rf"\.entry {kernel}\b", text).start()
        found = EXPECT.search(text, begin)
        more = f"{{\n\t.reg .b32 more;\n\tadd.s32 more, {found.group(1)}, 16;\n\t{found.group(0).replace(found.group(1) + ';', 'more;')}\n\t}}"
        with open(path, "w") as file:
            file.write(text[:found.start()] + more + text[found.end():])

    def waiting_kernels(self, path):
        """Entries with boxes of tensors, in the order of the file."""
        names = []
        for part in re.split(r"(?m)^\s*(?:\.visible )?\.entry ", self.text(path))[1:]:
            if EXPECT.search(part):
                names.append(re.match(r"\w+", part).group(0))
        return names

    def test_a_wait_that_never_ends(self):
        for name, source in (("wide", MODEL), ("texts", ATTENTION)):
            whole = self.compile(source, "--gpu", "sm_90a", "--debug-waits", name=f"{name}.ptx")
            plain = self.compile(source, "--gpu", "sm_90a", name=f"{name}-plain.ptx")
            steps = ("--steps", 2)
            truth = self.losses(*steps, artifact=plain, device="sim")
            self.assertEqual(self.losses(*steps, artifact=whole, device="sim"), truth)
            self.assertEqual(self.losses(*steps, artifact=whole, SEED=6), truth)
            kernels = self.waiting_kernels(whole)
            self.assertTrue(kernels, name)
            for kernel in kernels:
                bad = self.compile(source, "--gpu", "sm_90a", "--debug-waits=500", name=f"{name}-bad.ptx")
                self.spoil(bad, kernel)
                words = rf'kernel {kernel} \(.*\) waits at barrier "(full|empty)" of stage \d, block \(\d+,\d+,\d+\), thread \d+(.*), for the end of a phase of parity [01]'
                for device, when in (("sim", r""), ("cuda", r", in step 1")):
                    done = self.ftrun(bad, *steps, device=device, check=False)
                    self.assertEqual(done.returncode, 3, done.stderr)
                    said = re.search(words, done.stderr)
                    self.assertTrue(said, done.stderr)
                    self.assertEqual(said.group(2), when)
            self.assertNotIn("ft_waits", self.text(plain))
        # without the flag the simulator's own finder speaks
        self.spoil(plain, self.waiting_kernels(plain)[0])
        done = self.ftrun(plain, *steps, device="sim", check=False)
        self.assertRegex(done.stderr, "endless wait: warp .* waits for a phase of an mbarrier that nobody can end")

    def test_the_flag(self):
        with open(self.path("m.ft"), "w") as file:
            file.write(MODEL)
        self.fails(2, "--debug-waits is for a GPU", "ftc", self.path("m.ft"), "--debug-waits", "-o", self.path("m.so"))
        for number in ("0", "-3", "x", "99999999999"):
            self.fails(2, "a number of polls from 1 to 2147483647", "ftc", self.path("m.ft"), f"--debug-waits={number}", "-o", self.path("m.ptx"))
        done = support.run("ftc", self.path("m.ft"), "--debug-waits", "-o", self.path("m.ptx"))
        self.assertIn("--debug-waits bounds nothing here", done.stderr)

    def test_a_gpu_that_hangs(self):
        folder = ["--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=10", "--set", f"train.checkpoint.dir={self.path('c')}"]
        quiet = ("--set", "train.eval.every=0")
        self.losses("--steps", 40, *quiet)
        kernels = self.report()["kernel"] // 40
        for keep in (0, 1):
            done = self.ftrun(self.artifact, "--steps", 40, *folder, *quiet, "--set", "train.timeout=0.5", check=False, HANG_AFTER=kernels * 25, FT_KEEP_DATA=keep)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, r"the GPU has not ended (steps? \d+|what it was given).* for 0\.5 seconds \(train\.timeout\).*FT_CUDA_NO_GRAPH=wait")
            step = int(re.search(r"the checkpoint of step (10|20) is whole", done.stderr).group(1))
            self.assertIn(f"step-{step:08}.safetensors", os.listdir(self.path("c")))
            self.ftrun(self.artifact, "--steps", 40, "--resume", self.path("c"), FT_KEEP_DATA=keep)
            shutil.rmtree(self.path("c"))

    def test_a_gpu_that_is_slow(self):
        """Several runs that together take longer than train.timeout, each of which does end, are no hang."""
        artifact = self.compile(MODEL.replace("batch = 2048", "batch = 512"), "--gpu", "sm_90a", "--debug-waits", name="slow.ptx")
        limit = ("--set", "train.timeout=0.5", "--set", "train.eval.every=0")
        self.assertEqual(self.losses("--steps", 8, *limit, artifact=artifact, SLOW=120), self.losses("--steps", 8, artifact=artifact, device="sim"))

    def test_which_kernel_it_is(self):
        done = self.ftrun(self.artifact, "--steps", 5, "--set", "train.timeout=0.5", check=False, HANG_AFTER=7, FT_CUDA_NO_GRAPH="wait")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"the GPU has not ended kernel (k|join)\d+_\w+ \(.*\) in steps? \d+.* for 0\.5 seconds")
        done = self.ftrun(self.artifact, "--steps", 5, check=False, LOST_AFTER=7, FT_CUDA_NO_GRAPH="wait")
        self.assertRegex(done.stderr, r"kernel (k|join)\d+_\w+ \(.*\): unspecified launch failure")
        self.assertEqual(self.losses("--steps", 10, FT_CUDA_NO_GRAPH="wait"), self.losses("--steps", 10, device="sim"))


if __name__ == "__main__":
    support.main()
