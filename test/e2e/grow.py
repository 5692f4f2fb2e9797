"""What the first steps of a training have less of, `grow = truncate(...)`, `resize(...)`, `batch(...)`: the training equals one of three models, of
the sizes as they come, each on data of its size that numpy made and each going on with the weights and moments of the one before; a run resumed in
the middle is the same to the bit; ranks, micro-batches and the other ways to run change nothing else."""
import os
import shutil
import subprocess
import sys
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import hosts
import support

FIXED = {"FT_THREADS": "1"}
DRIVER = os.path.join(support.BUILD, "fake", "libfake_cuda.so")
N, EVERY = 32, 3
ROWS = """
model M(t: i32[BATCH, T=SIZE], n: i32[BATCH, T], y: i32[BATCH]) {
  x = Embedding(16, 8, name="e")(t)
  a = reshape(attention(rope(reshape(x, [BATCH, 1, T, 8])), rope(reshape(x, [BATCH, 1, T, 8])), reshape(x, [BATCH, 1, T, 8]), causal=true), [BATCH, T, 8])
  x = x + dropout(Linear(8, name="d")(relu(Linear(16, name="u")(LayerNorm(name="norm")(a)))), DROP)
  loss = mean(cross_entropy(Linear(16, name="o")(x), n)) + 0.1 * mean(cross_entropy(Linear(4, name="p")(mean(x, axis=1)), y))
  metric size = mean(f32(y) * 0 + T); metric samples = sum(f32(y) * 0 + 1)
}
data D { train = npy("t.npy", "n.npy", "y.npy"); shuffle = false; DATA }
train { batch = BATCH; epochs = 3; seed = 5; RECIPE; log { every = 1 steps } }
distributed { DISTRIBUTED }
"""
IMAGES = """
model M(image: KIND[BATCH, S=SIZE, S], y: i32[BATCH]) {
  x = reshape(f32(image) / 255, [BATCH, 1, S, S])
  x = relu(BatchNorm(name="bn")(Conv2d(4, 3, stride=2, padding=1, bias=false, name="c")(x)))
  x = dropout(relu(Conv2d(4, 3, padding=1, name="c2")(x)), DROP)
  loss = mean(cross_entropy(Linear(4, name="p")(mean(x, axis=(2, 3))), y))
  metric size = mean(f32(y) * 0 + S); metric samples = sum(f32(y) * 0 + 1)
}
data D { train = npy("i.npy", "y.npy"); shuffle = false; DATA }
train { batch = BATCH; epochs = 3; seed = 5; RECIPE; log { every = 1 steps } }
distributed { DISTRIBUTED }
"""


def resized(images, size):
    """PyTorch's interpolate(mode="bilinear", align_corners=False, antialias=False); test_is_pytorchs_bilinear compares them where there is PyTorch."""
    x = images.astype("f4")
    for axis in (1, 2):
        had = x.shape[axis]
        place = numpy.maximum((numpy.arange(size, dtype="f4") + numpy.float32(0.5)) * numpy.float32(had / size) - numpy.float32(0.5), 0)
        low = place.astype(int)
        share = (place - low).astype("f4").reshape([-1 if i == axis else 1 for i in range(3)])
        x = x.take(low, axis) * (1 - share) + x.take(numpy.minimum(low + 1, had - 1), axis) * share
    return numpy.round(x).astype("u1") if images.dtype == numpy.uint8 else x


class Grow(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        tokens = random.integers(0, 16, (N, 17)).astype("i4")
        self.data = {"t": tokens[:, :16], "n": tokens[:, 1:], "y": random.integers(0, 4, N).astype("i4"), "i": random.integers(0, 256, (N, 12, 12)).astype("u1")}
        self.save(self.data)

    def save(self, arrays):
        for name, value in arrays.items():
            numpy.save(self.path(name + ".npy"), numpy.ascontiguousarray(value))

    def model(self, text, grow="none", size=16, batch=4, recipe="optimizer = adam(lr=0.01)", drop=0.1, distributed="data = any", data="", kind="u8", name="m.so", flags=()):
        words = {"RECIPE": f"{recipe}; grow = {grow}", "BATCH": "B" if batch else "4", "DISTRIBUTED": distributed, "SIZE": str(size), "DATA": data, "DROP": str(drop), "KIND": kind}
        text = text.replace("batch = BATCH", f"batch = {batch}")
        for word, value in words.items():
            text = text.replace(word, value)
        return self.compile(text, *flags, name=name)

    def train(self, artifact, *flags):
        support.run("ftrun", *([artifact] if isinstance(artifact, str) else artifact), "--log-jsonl", "log", *flags, cwd=self.folder, env=FIXED)
        return [{k: v for k, v in line.items() if k in ("step", "loss", "size", "samples", "lr")} for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")]

    def in_stages(self, text, stages, **options):
        """Three trainings, each from the last checkpoint of the one before, on other data: [(size, batch, arrays)]."""
        lines, folder = [], self.path("stages")
        shutil.rmtree(folder, ignore_errors=True)
        for i, (size, batch, arrays) in enumerate(stages):
            self.save({**self.data, **arrays})
            artifact = self.model(text, size=size, batch=batch, name="stage.so", **options)
            until = EVERY * (i + 1) if i + 1 < len(stages) else 10**6
            resume = ["--resume", folder] if i else []
            lines = self.train(artifact, "--set", f"train.checkpoint.dir={folder}", *resume, "--save", "apart", *(["--steps", until] if until < 10**6 else []))
            self.save(self.data)
        return lines

    def assert_alike(self, text, grow, stages, tolerance=1e-5, run=(), name="m.so", size=16, flags=(), apart=None, **options):
        """Gives the lines of the trainings apart, for the next one like them."""
        apart = apart or self.in_stages(text, stages, **options)
        batch = stages[-1][1]
        artifact = self.model(text, grow, size=size, batch=batch, name=name, flags=flags, **options)
        lines = self.train(artifact, *run, "--save", "grown", "--set", f"train.grow.every={EVERY}")
        self.assertEqual([(line["size"], line["samples"], line["step"]) for line in lines], [(line["size"], line["samples"], line["step"]) for line in apart])
        numpy.testing.assert_allclose([line["loss"] for line in lines], [line["loss"] for line in apart], rtol=tolerance)
        one, two = support.read_safetensors(self.path("grown")), support.read_safetensors(self.path("apart"))
        self.assertEqual(one.keys(), two.keys())
        for key in one:
            numpy.testing.assert_allclose(one[key], two[key], rtol=50 * tolerance, atol=5 * tolerance, err_msg=key)
        return apart

    def rows(self, *sizes):
        return [(size, 4, {name: self.data[name][:, :size] for name in "tn"}) for size in sizes]

    def test_rows(self):
        cases = (
            ("optimizer = adamw(lr=0.01, weight_decay=0.1); clip = norm(0.5); schedule = constant(warmup=4 steps); ema = 0.9", {}),
            ("optimizer = sgd(lr=0.05, momentum=0.9); freeze = \"e.*\"; recompute = auto(budget=4 MiB)", {"flags": ("--disable=fuse,memplan,storage,schedule",), "drop": 0}),
            ("optimizer = muon(lr=0.01); recompute = block; precision = bf16", {"tolerance": 5e-3}),
        )
        for recipe, options in support.of_this_turn(cases, 3):
            with self.subTest(recipe):
                self.assert_alike(ROWS, "truncate(T, 4, 8)", self.rows(4, 8, 16), recipe=recipe, **options)

    def accumulated(self, *sizes):
        return [(size, 2, arrays) for size, _, arrays in self.rows(*sizes)]

    def test_micro_batches_and_the_simulator(self):
        recipe = "optimizer = adam(lr=0.01); accumulate = 2; clip = norm(0.5)"
        apart = self.assert_alike(ROWS, "truncate(T, 4, 8)", self.accumulated(4, 8, 16), recipe=recipe)
        self.assert_alike(ROWS, "truncate(T, 4, 8)", self.accumulated(4, 8, 16), recipe=recipe, name="m.ptx", run=("--device", "sim"), apart=apart)
        support.run("ftrun", self.path("m.ptx"), "--device", "cuda", "--save", "cuda", "--set", f"train.grow.every={EVERY}", cwd=self.folder, env={**FIXED, "FT_CUDA_LIBRARY": DRIVER, "FT_CUBLASLT": "own"})
        one, two = support.read_safetensors(self.path("grown")), support.read_safetensors(self.path("cuda"))
        for key in one:
            numpy.testing.assert_array_equal(one[key], two[key], err_msg=key)

    @unittest.skipIf(support.IS_SANITIZED, "libraries with sanitizers are for programs with sanitizers")
    def test_embedded(self):
        """Programs that use ft.h (here python/ft) grow by the step's number, too, in the middle of no step: the same to the bit."""
        artifact = self.model(ROWS, "truncate(T, 4, 8, share=0.8)", batch=2, recipe="optimizer = adam(lr=0.01); accumulate = 2")
        self.train(artifact, "--threads", "1", "--steps", "7", "--save", "run")
        program = ("import ft, numpy\n"
                   "arrays = [numpy.load(name + '.npy') for name in 'tny']\n"
                   "with ft.Model('m.so', threads=1) as model:\n"
                   "    model.init(5)\n"
                   "    model.set_total(8, 7)\n"
                   "    for i in range(0, 28, 2): model.train_step(*[array[i : i + 2] for array in arrays])\n"
                   "    model.save_weights('embedded.safetensors')\n")
        env = dict(os.environ, PYTHONPATH=os.path.join(support.ROOT, "python"), FT_LIBRARY=os.path.join(support.BUILD, "lib", "libft.so"))
        done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        one, two = support.read_safetensors(self.path("run")), support.read_safetensors(self.path("embedded.safetensors"))
        for key in one:
            numpy.testing.assert_array_equal(one[key], two[key], err_msg=key)

    def images(self, *sizes, batch=4):
        return [(size, batch, {"i": resized(self.data["i"], size)}) for size in sizes]

    def test_images(self):
        """Smaller images are made within the step, as PyTorch's bilinear interpolation makes them; pixels of 8 bits are rounded."""
        self.assert_alike(IMAGES, "resize(S, 6, 8)", self.images(6, 8, 12), size=12, tolerance=5e-5)
        self.data["i"] = self.data["i"].astype("f4")
        self.save(self.data)
        self.assert_alike(IMAGES, "resize(S, 5)", self.images(5, 12), size=12, kind="f32", recipe="optimizer = sgd(lr=0.05); accumulate = 2", tolerance=5e-5)

    def test_is_pytorchs_bilinear(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        x = self.data["i"].astype("f4")
        for size in (5, 6, 8, 11):
            want = torch.nn.functional.interpolate(torch.tensor(x)[:, None], size=(size, size), mode="bilinear", align_corners=False)[:, 0]
            numpy.testing.assert_allclose(resized(x, size), want.numpy(), rtol=1e-5, atol=1e-4)

    def assert_batches(self, text, recipe, parts, sizes=(1, 2, 4), size=16):
        """A step has the first samples of its batch; the rest of it waits for another epoch. The rate per samples is that of the step's."""
        lines, whole, names = [], sizes[-1], "tny" if text == ROWS else "iy"
        for i, batch in enumerate(sizes):
            last = 3 * N // whole if i + 1 == len(sizes) else EVERY * (i + 1) * parts
            rows = numpy.concatenate([part * whole % N + numpy.arange(batch) for part in range(EVERY * i * parts, last)])
            self.save({name: self.data[name][rows] for name in names})
            artifact = self.model(text, size=size, batch=batch, recipe=recipe, drop=0, name="stage.so")
            lines += self.train(artifact, "--epochs", "1", "--save", "apart", *(["--init", "apart"] if i else []))
        self.save(self.data)
        artifact = self.model(text, "batch(" + ", ".join(map(str, sizes[:-1])) + f", every={EVERY} steps)", size=size, batch=whole, recipe=recipe, drop=0)
        grown = self.train(artifact, "--save", "grown")
        self.assertEqual([line["samples"] for line in grown], [line["samples"] for line in lines])
        self.assertEqual([line["lr"] for line in grown], [line["lr"] for line in lines])
        numpy.testing.assert_allclose([line["loss"] for line in grown], [line["loss"] for line in lines], rtol=1e-5)
        one, two = support.read_safetensors(self.path("grown")), support.read_safetensors(self.path("apart"))
        for key in two:
            numpy.testing.assert_allclose(one[key], two[key], rtol=1e-4, atol=1e-5, err_msg=key)

    def test_batches(self):
        self.assert_batches(ROWS, "optimizer = sgd(lr=0.1)", 1)
        self.assert_batches(ROWS, "optimizer = sgd(lr=0.1 per 8); accumulate = 2", 2)

    def test_resumed(self):
        """In the middle of the second size, to the bit; with a share of all steps, which is that of the whole training."""
        cases = ((ROWS, "truncate(T, 4, 8, share=0.5)", 16), (IMAGES, "resize(S, 6, 8, share=0.5)", 12), (ROWS, "batch(1, 2, share=0.5)", 16))
        for text, grow, size in support.of_this_turn(cases, 3):
            with self.subTest(grow):
                folder = self.path(grow[:4])
                artifact = self.model(text, grow, size=size, recipe="optimizer = adam(lr=0.01); schedule = cosine; ema = 0.9", data="workers = 2")
                whole = self.train(artifact, "--save", "whole", "--set", f"train.checkpoint.dir={folder}", "--set", "train.checkpoint.every=8", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.keep=9")
                by_size = [line["samples" if "batch" in grow else "size"] for line in whole]
                self.assertEqual([by_size.count(s) for s in sorted(set(by_size))], [6, 6, 12])
                self.assertEqual(by_size, sorted(by_size))
                checkpoint = next(name for name in sorted(os.listdir(folder)) if name.endswith("8.safetensors"))
                self.assertEqual(self.train(artifact, "--resume", os.path.join(folder, checkpoint), "--save", "again"), whole)
                with open(self.path("whole"), "rb") as one, open(self.path("again"), "rb") as two:
                    self.assertEqual(one.read(), two.read())

    def test_kept_on_the_device(self):
        """Where a device keeps the data, several steps are one launch, of one size."""
        artifact = self.model(ROWS, "truncate(T, 4, 8, every=3)", data="workers = 0")
        losses = []
        for keep in ("0", "1"):
            support.run("ftrun", artifact, "--log-jsonl", "log", cwd=self.folder, env={**FIXED, "FT_KEEP_DATA": keep})
            losses.append([line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line])
        self.assertEqual(*losses)

    def test_ranks(self):
        if not hosts.HAS_MPI:
            self.skipTest("no MPI: libft-mpi.so or mpirun is missing")
        cases = (
            ("truncate(T, 4, every=4)", ROWS, 16, ("data = 2; zero = 3", "tensor = 2")),
            ("batch(2, every=4)", ROWS, 16, ("data = any",)),
            ("resize(S, 6, every=4)", IMAGES, 12, ("data = any; sync_batch_norm = true",)),
        )
        for grow, text, size, ways in support.of_this_turn(cases, 3):
            one = self.train(self.model(text, grow, size=size, drop=0), "--save", "one")
            for distributed in ways:
                with self.subTest(grow, distributed=distributed):
                    half = "tensor" not in distributed
                    if grow.startswith("batch"):  # each rank takes the first of its rows: other samples than one rank takes
                        order = numpy.arange(N).reshape(-1, 2, 2).transpose(0, 2, 1).ravel()
                        self.save({name: self.data[name][order] for name in "tny"})
                    artifact = self.model(text, grow.replace("batch(2", "batch(1"), size=size, batch=2 if half else 4, drop=0, distributed=distributed, name="r.so")
                    two = self.train(["--ranks", "2", artifact], "--save", "two")
                    self.save(self.data)
                    self.assertEqual([line["size"] for line in two], [line["size"] for line in one])
                    numpy.testing.assert_allclose([line["loss"] for line in two], [line["loss"] for line in one], rtol=5e-5)
                    a, b = support.read_safetensors(self.path("one")), support.read_safetensors(self.path("two"))
                    for key in a:
                        numpy.testing.assert_allclose(b[key], a[key], rtol=1e-3, atol=2e-4, err_msg=key)

    def test_other_ways_to_run(self):
        """--check=nan, statistics by layer, traces and --overfit-batch have the sizes of the steps; --find-lr and bench look at whole steps."""
        artifact = self.model(ROWS, "truncate(T, 4, 8, every=3)", recipe="optimizer = adam(lr=0.01); log { layers = 2 steps }")
        whole = self.train(artifact, "--set", "train.log.layers=0")
        for flags in (["--check=nan"], [], ["--trace", self.path("trace.pftrace")]):
            with self.subTest(flags):
                self.assertEqual(self.train(artifact, *flags), whole)
        self.assertEqual([line["size"] for line in self.train(artifact, "--overfit-batch", "--steps", "8")], [4] * 3 + [8] * 3 + [16] * 2)
        plain = self.model(ROWS, recipe="optimizer = adam(lr=0.01)", name="p.so")
        said = [support.run("ftrun", "--find-lr", a, "--steps", "12", cwd=self.folder, env=FIXED).stdout for a in (artifact, plain)]
        self.assertEqual(*said)
        support.run("ftrun", "bench", artifact, "--steps", "2", cwd=self.folder)
        said = support.run("ftrun", "info", artifact).stdout
        self.assertIn("step, rows of 4", said)
        self.assertIn("grow: rows of 4 up to step 3, rows of 8 up to step 6\n", support.run("ftrun", artifact, "--dry-run", cwd=self.folder).stdout)
        self.assertIn("a step with rows of 8 needs ", support.run("ftc", self.path("model.ft"), "--set", "train.grow=truncate(T, 8)", "--memory").stdout)

    def test_lengths_of_padded_rows(self):
        """Rows that are cut off are as long as what is left of them."""
        with open(self.path("d.jsonl"), "w") as file:
            for i in range(8):
                file.write(f'{{"text": "{"abcdefghijklmnop"[: 2 + 2 * i]}", "y": {i}}}\n')
        text = """
model M(t: i32[B, T=16], l: i32[B], y: i32[B]) {
  inside = iota([B, T], axis=1) < reshape(l, [B, 1])
  loss = mean(Linear(1, name="w")(f32(reshape(l, [B, 1])))) * 0 + mean(sum(f32(inside), axis=1) - f32(l))
  metric longest = max(f32(l)); metric size = mean(f32(y) * 0 + T)
}
data D { train = jsonl("d.jsonl", label="y", keys="tokens, lengths, label") | pad; shuffle = false }
train { batch = 4; epochs = 2; optimizer = sgd(lr=0); grow = truncate(T, 6, every=2 steps); log { every = 1 steps } }
"""
        support.run("ftrun", self.compile(text), "--log-jsonl", "log", cwd=self.folder)
        lines = [line for line in support.read_jsonl(self.path("log")) if "loss" in line]
        self.assertEqual([(line["size"], line["longest"], line["loss"]) for line in lines], [(6, 6, 0), (6, 6, 0), (16, 8, 0), (16, 16, 0)])

    def test_refused(self):
        for text, grow, needle in (
            (ROWS, "truncate(K, 4)", "no input has a dimension 'K' behind its batch, such as i32[B, K=128]"),
            (ROWS, "truncate(B, 2)", "no input has a dimension 'B' behind its batch"),
            (ROWS, "truncate(T, 8, 16)", "sizes are below the whole, which is T = 16; the last steps have that"),
            (ROWS, "batch(4)", "sizes are below the whole, which is batch = 4"),
            (ROWS, "truncate(T, 8, 4)", "grow is truncate(T, 64, 128), resize(S, 16, 20) or batch(16, 32), with up to 7 sizes from the smallest"),
            (ROWS, "truncate(T)", "grow is truncate(T, 64, 128)"), (ROWS, "wider(T, 4)", "grow is truncate(T, 64, 128)"),
            (ROWS, "truncate(4, 8)", "grow begins with the name of a dimension of the model's inputs"),
            (ROWS, "truncate(T, 4, over=0.3)", "grow has no argument 'over'; it has every and share"),
            (ROWS, "truncate(T, 4, share=1.5)", "train.grow.share"),
            (ROWS, "resize(T, 4)", "grow = resize(T, ...) is for images, a model's first input, of u8 or f32: input 't' has T, too"),
            (ROWS.replace("  x =", "  param w: [T, 8] = zeros\n  x = mean(w) +", 1), "truncate(T, 4)", "'w' is f32[16,8] with T = 16 and f32[4,8] with T = 4, but all sizes share parameters and states"),
            (ROWS.replace("  x =", "  param w: [B] = zeros\n  x = mean(w) +", 1), "batch(2)", "'w' is f32[4] with batch = 4 and f32[2] with batch = 2, but all sizes share parameters and states"),
            (IMAGES.replace("mean(x, axis=(2, 3))", "flatten(x, from=1)"), "resize(S, 6)", "'p.weight' is f32[4,256] with S = 16 and f32[4,36] with S = 6, but all sizes share"),
            (ROWS.replace("pipeline = 1", "pipeline = 2").replace("DISTRIBUTED", "pipeline = 2"), "truncate(T, 4)", "and distributed.pipeline do not go together"),
            (ROWS.replace("  x =", "  check = reshape(t, [BATCH, 2, 8])\n  x =", 1), "truncate(T, 4)", "with T = 4, for grow = truncate(T, 4)"),
        ):
            with self.subTest(needle):
                words = {"RECIPE": f"optimizer = sgd(lr=0.1); grow = {grow}", "batch = BATCH": "batch = 4", "BATCH": "B", "DISTRIBUTED": "", "SIZE": "16", "DATA": "", "DROP": "0", "KIND": "u8"}
                for word, value in words.items():
                    text = text.replace(word, value)
                with open(self.path("bad.ft"), "w") as file:
                    file.write(text)
                self.fails(1, needle, "ftc", self.path("bad.ft"), "-o", self.path("bad.so"))
        artifact = self.model(ROWS, "truncate(T, 4)")
        for said in ("wider(T, 4)", "truncate(T, 8, 4)", "batch(2"):  # in a setting, too
            self.fails(1, f"train.grow = {said}: grow is truncate(T, 64, 128)", "ftc", self.path("bad.ft"), "-o", self.path("bad.so"), "--set", f"train.grow={said}")
        self.fails(1, "train.grow", "ftrun", artifact, "--set", "train.grow=truncate(T, 8)", cwd=self.folder)


if __name__ == "__main__":
    support.main()
