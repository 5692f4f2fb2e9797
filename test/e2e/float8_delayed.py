"""precision = fp8(scaling=delayed): the scales follow from what was largest in earlier steps, and are as docs/language.md says, whatever the step is made
of: parts of a batch, ranks, recomputation, stops, other lengths of rows, layers applied twice. float8_gpt.py has a whole network, step by step."""
import glob
import os
import re
import shutil
import sys
import unittest

import numpy

sys.path[:0] = [os.path.join(os.path.dirname(__file__), part) for part in ("..", os.path.join("..", "num"))]
import float8
import support

HAS_MPI = bool(shutil.which("mpirun")) and bool(glob.glob(os.path.join(support.BUILD, "**", "libft-mpi.so"), recursive=True))
BATCH, PARTS, STEPS, RATE, HISTORY = 64, 4, 6, 0.1, 2
IN, OUT = 32, 16  # all dimensions of products, of a part of a batch too, are multiples of 16: sm_90a multiplies bytes there; an odd batch is one that it does not
SCALES, LARGEST = "@float8.scale", "@float8.history"
ENDS = numpy.array([448, 448, 57344], "f4")
BYTES, HOPPER = ("--gpu", "sm_89"), ("--gpu", "sm_90a")  # products read their operands in 8 bits, in any order, and along k
ONE = """model M(x: f32[B, 32], y: f32[B, 16]) {
  p = Linear(16, bias=false, name="fc")(x)
  loss = sum((p - y) * (p - y)) / 16
  output p
}
data D { train = npy("x.npy", "y.npy") }
train { data = D; batch = 64; optimizer = sgd(lr=0.1); precision = fp8(scaling=delayed, history=2); log { every = 1 }; eval = none }
"""
DEEP = """model M(x: f32[B, 32], label: i32[B]) {
  shared = Linear(32, name="shared")
  h = relu(shared(relu(shared(x))))
  repeat i in 0..2 as h { h = h + Linear(32, name="down")(gelu(Linear(48, name="up")(h))) }
  loss = mean(cross_entropy(Linear(16, name="head")(h), label))
}
data D { train = npy("x.npy", "label.npy"); valid = npy("x.npy", "label.npy") }
train { data = D; batch = 64; optimizer = adamw(lr=0.01); precision = fp8(scaling=delayed, history=3, margin=1); log { every = 1 }; eval = none }
"""
PRODUCTS = 7  # shared twice, up and down twice, head


def bf16(x):
    bits = numpy.ascontiguousarray(x, "f4").view("u4").astype("u8")
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype("u4").view("f4")


def next_scales(history, before, margin=0):
    """`_default_sf_compute` of Transformer Engine (transformer_engine/pytorch/quantization.py), in f32."""
    largest = history.max(0)
    with numpy.errstate(all="ignore"):
        scale = ENDS / largest / numpy.float32(2**margin)
    return numpy.minimum(numpy.where(numpy.isfinite(largest) & (largest > 0), scale, before), numpy.finfo("f4").max)


class Delayed(support.Case):
    def data(self, x, labels=None, y=None):
        numpy.save(self.path("x.npy"), x)
        if labels is not None:
            numpy.save(self.path("label.npy"), labels)
        if y is not None:
            numpy.save(self.path("y.npy"), y)

    def deep_data(self):
        x = numpy.random.default_rng(4).standard_normal((STEPS * BATCH, IN)).astype("f4")
        self.data(x, x[:, :10].argmax(1).astype("i4"))

    def train(self, artifact, *flags, steps=STEPS, folder=None):
        """The states after each step."""
        folder = folder or self.path("states-" + os.path.basename(artifact))
        sets = {"checkpoint.dir": folder, "checkpoint.unit": "step", "checkpoint.every": 1, "checkpoint.keep": steps}
        support.run("ftrun", artifact, "--data", self.folder, "--no-shuffle", "--steps", steps, "--log-jsonl", self.path("log"), *flags,
                    *(item for name, value in sets.items() for item in ("--set", f"train.{name}={value}")))
        self.losses = [line["loss"] for line in support.read_jsonl(self.path("log")) if "loss" in line]
        return [support.read_safetensors(path) for path in sorted(glob.glob(os.path.join(folder, "step-*.safetensors")))]

    def compile(self, source, *options, name="m.so"):
        """What is for a GPU of 8-bit floats multiplies these, of both formats."""
        made = super().compile(source, *options, name=name)
        if options[-2:] in (BYTES, HOPPER):
            with open(made) as file:
                found = set(re.findall(r"k32\.(?:row\.col\.)?f32\.(\w+\.e\w+)", file.read()))
            self.assertEqual(found, {"e4m3.e4m3", "e5m2.e4m3"}, name)
        return made

    def same(self, a, b):
        self.assertEqual(set(a), set(b))
        for name, value in a.items():
            numpy.testing.assert_array_equal(value, b[name], err_msg=name)

    def emulated(self, state, x, y):
        """One step of ONE with the scales of `state`: loss, gradient, what is largest. Sums are exact."""
        of_x, of_w, of_dy = state[SCALES][0]
        with numpy.errstate(all="ignore"):
            a, b = float8.nearest("e4m3", x * of_x), float8.nearest("e4m3", state["fc.weight"] * of_w)
            p = bf16((a.astype("f8") @ b.astype("f8").T).astype("f4") * (1 / of_x * (1 / of_w)))
            dy = 2 * (p - y) / numpy.float32(16)
            dw = (float8.nearest("e5m2", dy * of_dy).astype("f8").T @ a.astype("f8")).astype("f4") * (1 / of_dy * (1 / of_x))
        return numpy.square((p - y).astype("f8")).sum() / 16, dw, [numpy.abs(t).max() for t in (x, state["fc.weight"], dy)]

    def test_jumps_saturate(self):
        """Inputs that are 1000 times as large for a step are cut off at the largest number, and the scales follow a step later; so for tiny ones. The history forgets."""
        random = numpy.random.default_rng(6)
        sizes = numpy.repeat([1, 1e3, 1e3, 1e-3, 1, 0], BATCH).astype("f4")
        x, y = (random.standard_normal((STEPS * BATCH, n)).astype("f4") for n in (IN, OUT))
        x *= sizes[:, None]
        self.data(x, y=y)
        flags = ("--set", "train.lr=1e-9")  # the weights stay of a size
        targets = ("m.so", "cpu", ()), ("u.so", "cpu", ("--disable=fuse",)), ("m.ptx", "sim", ()), ("e.ptx", "sim", BYTES), ("h.ptx", "sim", HOPPER)
        for name, device, options in support.of_this_turn(targets, 2):
            made = self.compile(ONE, *options, name=name)
            support.run("ftrun", made, "--data", self.folder, "--steps", 0, "--save", self.path("start"), "--device", device)
            before = support.read_safetensors(self.path("start"))
            before[LARGEST] = numpy.zeros((HISTORY, 1, 3), "f4")
            for step, after in enumerate(self.train(made, *flags, "--device", device)):
                rows = slice(step * BATCH, (step + 1) * BATCH)
                loss, _, largest = self.emulated(before, x[rows], y[rows])
                with self.subTest(name, step=step):
                    self.assertLess(abs(self.losses[step] - loss), 1e-5 * loss)
                    numpy.testing.assert_allclose(after[LARGEST][-1, 0], largest, rtol=1e-6)
                    numpy.testing.assert_array_equal(after[LARGEST][:-1], before[LARGEST][1:])
                    numpy.testing.assert_array_equal(after[SCALES], next_scales(after[LARGEST], before[SCALES]))
                before = after
            self.assertEqual(before[LARGEST][-1, 0, 0], 0)

    def test_gradients(self):
        """Also by a rate that moves the weights."""
        random = numpy.random.default_rng(7)
        x, y = (random.standard_normal((STEPS * BATCH, n)).astype("f4") for n in (IN, OUT))
        self.data(x, y=y)
        for name, device, options in support.of_this_turn((("e.ptx", "sim", BYTES), ("m.so", "cpu", ()), ("m.ptx", "sim", ()), ("h.ptx", "sim", HOPPER)), 2):
            states = self.train(self.compile(ONE, *options, name=name), "--device", device)
            for step in range(1, STEPS):
                rows = slice(step * BATCH, (step + 1) * BATCH)
                _, dw, _ = self.emulated(states[step - 1], x[rows], y[rows])
                ours = (states[step - 1]["fc.weight"].astype("f8") - states[step]["fc.weight"]) / RATE
                numpy.testing.assert_allclose(ours, dw, atol=1e-5 * numpy.abs(dw).max())

    def test_not_finite(self):
        """An infinity is cut off as any number beyond the largest; the scales stay as long as it is in the history. A NaN is one."""
        random = numpy.random.default_rng(6)
        x, y = (random.standard_normal((STEPS * BATCH, n)).astype("f4") for n in (IN, OUT))
        x[BATCH * 2 + 3, 4] = numpy.inf
        self.data(x, y=y)
        made = self.compile(ONE)
        states = self.train(made, "--set", "train.lr=1e-9")
        self.assertTrue(numpy.isfinite(self.losses).all())
        self.assertEqual([state[LARGEST][-1, 0, 0] == numpy.inf for state in states], [False, False, True, False, False, False])
        of_x = [state[SCALES][0, 0] for state in states]
        self.assertEqual(of_x[1:4], [of_x[1]] * 3)
        self.assertEqual(of_x[4], numpy.float32(448) / numpy.abs(x[BATCH * 3 : BATCH * 5]).max())
        x[BATCH * 2 + 3, 4] = numpy.nan
        self.data(x, y=y)
        self.fails(1, "the loss of step 3 is NaN", "ftrun", made, "--data", self.folder, "--no-shuffle")

    def test_rows(self):
        """What belongs to one tensor: a layer that is applied twice has two inputs and one weight; of a value that two layers read all is the same."""
        self.deep_data()
        for state in self.train(self.compile(DEEP)):
            self.assertEqual(state[SCALES].shape, (PRODUCTS, 3))
            self.assertEqual(state[SCALES][0, 1], state[SCALES][1, 1])
            self.assertNotEqual(state[SCALES][0, 0], state[SCALES][1, 0])
            numpy.testing.assert_array_equal(state[SCALES], next_scales(state[LARGEST], numpy.ones((PRODUCTS, 3), "f4"), 1))
            weights = [state[f"{name}.weight"] for name in ("shared", "shared", "h.0.up", "h.0.down", "h.1.up", "h.1.down", "head")]
            self.assertEqual(len(weights), PRODUCTS)
        twice = DEEP.replace("h + Linear", 'Linear(32, name="beside")(h) + Linear')
        for state in self.train(self.compile(twice, name="twice.so")):
            numpy.testing.assert_array_equal(state[SCALES][2, 0], state[SCALES][3, 0])
            numpy.testing.assert_array_equal(state[SCALES][2, 2], state[SCALES][4, 2])  # the gradient of a sum is that of its terms

    def test_stops_evaluations_and_recomputation(self):
        """They change no bit of what a training comes to."""
        self.deep_data()
        made = self.compile(DEEP)
        whole = self.train(made)
        for name, flags in {"evaluated": ("train.eval.every=1", "train.eval.unit=step"), "pointwise": ("train.recompute=pointwise",), "block": ("train.recompute=block",)}.items():
            states = self.train(self.compile(DEEP, *(item for flag in flags for item in ("--set", flag)), name=name + ".so"))
            for a, b in zip(whole, states):
                self.same(a, b)
        folder = self.path("stopped")
        self.train(made, steps=2, folder=folder)
        self.same(self.train(made, "--resume", folder, folder=folder)[-1], whole[-1])
        parts = self.compile(DEEP, "--set", f"train.batch={BATCH // PARTS}", "--set", f"train.accumulate={PARTS}", name="parts.so")
        all_parts = self.train(parts)
        folder = self.path("stopped-parts")
        self.train(parts, steps=2, folder=folder)
        self.same(self.train(parts, "--resume", folder, folder=folder)[-1], all_parts[-1])

    def divided(self, whole, parts):
        """The first step of a batch in parts: the same weights and scales, so what is largest of weights and of the first input is the same; of what is
        computed, up to a tie of bf16."""
        ratio = parts[LARGEST][-1] / whole[LARGEST][-1]
        numpy.testing.assert_array_equal(ratio[0, :2], 1)
        numpy.testing.assert_array_equal(ratio[:, 1], 1)
        numpy.testing.assert_allclose(ratio, 1, rtol=1e-2)

    def test_parts(self):
        """A step is an update: the largest of all parts counts, and a scale changes behind the last one."""
        self.deep_data()
        whole = self.train(self.compile(DEEP))
        parts = self.train(self.compile(DEEP, "--set", f"train.batch={BATCH // PARTS}", "--set", f"train.accumulate={PARTS}", name="parts.so"))
        self.divided(whole[0], parts[0])
        inputs = numpy.abs(numpy.load(self.path("x.npy"))).reshape(STEPS, -1).max(1)
        for step, state in enumerate(parts):
            self.assertEqual(state[LARGEST][-1, 0, 0], inputs[step])  # of this batch, and not of an earlier one
            numpy.testing.assert_array_equal(state[SCALES], next_scales(state[LARGEST], numpy.ones((PRODUCTS, 3), "f4"), 1))
        for options in support.of_this_turn(((), BYTES, HOPPER), 3):
            made = self.compile(DEEP, "--set", f"train.batch={BATCH // PARTS}", "--set", f"train.accumulate={PARTS}", *options, name="parts.ptx")
            sim = self.train(made, "--device", "sim", steps=2)
            numpy.testing.assert_allclose(sim[0][LARGEST][-1], parts[0][LARGEST][-1], rtol=1e-2)

    @unittest.skipUnless(HAS_MPI, "without MPI there is one rank")
    def test_ranks(self):
        """All ranks scale alike, by what is largest in all of the batch; with zero, too."""
        self.deep_data()
        alone = self.train(self.compile(DEEP, "--set", f"train.batch={BATCH // 2}", "--set", "train.accumulate=2", name="alone.so"))
        any_ranks = self.compile(DEEP, "--set", "distributed.data=any", "--set", f"train.batch={BATCH // 2}", name="any.so")
        states = self.train(any_ranks, "--ranks", 2)
        for a, b in zip(alone, states):
            numpy.testing.assert_allclose(b[SCALES], a[SCALES], rtol=2e-2)
        self.divided(alone[0], states[0])
        self.assertEqual(len(self.train(any_ranks, folder=self.path("one"))), STEPS)
        for zero in support.of_this_turn((1, 2, 3), 3):
            made = self.compile(DEEP, "--set", "distributed.data=2", "--set", f"train.batch={BATCH // 2}", "--set", f"distributed.zero={zero}", name=f"zero{zero}.so")
            for a, b in zip(states, self.train(made, "--ranks", 2)):
                numpy.testing.assert_allclose(b[SCALES], a[SCALES], rtol=2e-2)

    @unittest.skipUnless(HAS_MPI, "without MPI there is one rank")
    def test_ranks_that_stop(self):
        """Two ranks that stop and go on are two that did not, to the bit; the history is one of all ranks, so one rank may go on, too. An odd batch, and PTX."""
        self.deep_data()
        alone = self.compile(DEEP, "--set", "train.batch=5", "--set", "train.accumulate=4", name="alone.so")
        ways = (("odd.so", ("distributed.data=any", "train.batch=5", "train.accumulate=2"), ()),
                ("zero.so", ("distributed.data=2", f"train.batch={BATCH // 2}", "distributed.zero=3"), ()),
                ("bytes.ptx", ("distributed.data=2", f"train.batch={BATCH // 2}"), ("--device", "sim")))
        for name, options, flags in support.of_this_turn(ways, 3):
            made = self.compile(DEEP, *(item for option in options for item in ("--set", option)), *(BYTES if flags else ()), name=name)
            whole = self.train(made, "--ranks", 2, *flags, steps=3)
            folder = self.path("stopped-" + name)
            self.train(made, "--ranks", 2, *flags, steps=2, folder=folder)
            if "any" in options[0]:
                one = self.train(alone, "--resume", shutil.copytree(folder, folder + "-alone"), steps=3, folder=folder + "-alone")[-1]
                numpy.testing.assert_array_equal(one[LARGEST][:-1], whole[1][LARGEST][1:])
            resumed = self.train(made, "--ranks", 2, "--resume", folder, *flags, steps=3, folder=folder)
            self.same(resumed[-1], whole[-1])

    def test_predictions(self):
        """They have the scales of the weights, whatever the samples beside one; without these the scales are 1, and that is told."""
        random = numpy.random.default_rng(6)
        x, y = (random.standard_normal((STEPS * BATCH, n)).astype("f4") for n in (IN, OUT))
        self.data(x, y=y)
        made = self.compile(ONE)
        self.train(made, "--save", self.path("w"))
        weights = support.read_safetensors(self.path("w"))
        self.assertEqual(set(weights), {"fc.weight", SCALES})
        near, of_x, of_w = numpy.concatenate([x[:1], x[1:BATCH] * 50]), *weights[SCALES][0, :2]
        for name, rows in (("whole", x[:BATCH]), ("near", near)):
            numpy.save(self.path("in.npy"), rows)
            support.run("ftrun", "predict", made, "--weights", self.path("w"), "--input", "x=" + self.path("in.npy"), "--output", self.path(name + ".npy"))
            a, b = float8.nearest("e4m3", rows * of_x).astype("f8"), float8.nearest("e4m3", weights["fc.weight"] * of_w).astype("f8")
            numpy.testing.assert_array_equal(numpy.load(self.path(name + ".npy")), bf16((a @ b.T).astype("f4") * (1 / of_x * (1 / of_w))))
        self.assertTrue((numpy.load(self.path("whole.npy"))[0] == numpy.load(self.path("near.npy"))[0]).all())
        del weights[SCALES]
        support.write_safetensors(self.path("bare"), weights)
        done = support.run("ftrun", "predict", made, "--weights", self.path("bare"), "--input", "x=" + self.path("in.npy"), "--output", self.path("bare.npy"))
        self.assertIn("bare has no @float8.scale: operands of 8-bit products are not scaled", done.stdout + done.stderr)

    def test_other_steps(self):
        """Other forms of the step, and other precisions beside it, know the same tensors."""
        self.deep_data()
        grown = "grow = batch(16, 32, every=2 steps)"
        steps = (("frozen", "optimizer =", 'freeze = after(3 steps, "shared.*"); optimizer ='), ("sharp", "optimizer =", "sharpness = sam(every=2); optimizer ="),
                 ("own", "precision = fp8", "precision = bf16"), ("half", "precision = fp8(scaling=delayed, history=3, margin=1)", "precision = fp16(loss_scale=dynamic)"),
                 ("grown", "optimizer =", grown + "; optimizer ="))
        for name, old, new in support.of_this_turn(steps, 2):
            source, flags = DEEP.replace(old, new), ()
            if name in ("own", "half"):
                source = source.replace("precision = bf16(scaling=delayed, history=3, margin=1)", "precision = bf16").replace('name="up"', 'name="up", precision=fp8')
                flags = "--set", "train.fp8.scaling=delayed", "--set", "train.fp8.history=3", "--set", "train.fp8.margin=1"
            with self.subTest(name):
                states = self.train(self.compile(source, *flags, name=name + ".so"))
                count = 2 if name in ("own", "half") else PRODUCTS
                for state in states:
                    self.assertEqual(state[SCALES].shape, (count, 3))
                    numpy.testing.assert_array_equal(state[SCALES], next_scales(state[LARGEST], state[SCALES], 1))
                self.assertTrue(numpy.isfinite(self.losses).all())
                self.assertTrue((states[-1][LARGEST][-1, :, :2] > 0).all())

    def test_refused(self):
        for flags, sentence in ((("distributed.tensor=2",), "precision = fp8 goes with distributed.data, and not with distributed.tensor"),
                                (("distributed.pipeline=2", "train.accumulate=2"), "precision = fp8 goes with distributed.data, and not with distributed.pipeline"),
                                (("train.fp8.scaling=late",), "'late' is none of: current delayed"), (("train.fp8.history=0",), "0 is less than 1")):
            with open(self.path("m.ft"), "w") as file:
                file.write(DEEP)
            self.fails(1, sentence, "ftc", self.path("m.ft"), "-o", self.path("r.so"), *(item for flag in flags for item in ("--set", flag)))
        with open(self.path("m.ft"), "w") as file:
            file.write(DEEP.replace("scaling=delayed, ", ""))
        self.fails(1, "fp8's history is one of delayed scaling: say fp8(scaling=delayed, history=3)", "ftc", self.path("m.ft"), "-o", self.path("r.so"))


if __name__ == "__main__":
    support.main()
