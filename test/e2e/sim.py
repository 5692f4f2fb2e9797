"""Whole trainings on the simulator against the same model compiled for the processor: from the same
seed and batches, the losses of a step may differ only by the order in which sums are taken (measured: 2e-7 relative). Every
example is among them, small. And the error of a damaged kernel, as a user sees it."""
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support


class Sim(support.Case):
    def setUp(self):
        super().setUp()
        for name in ("FT_SIM_SEED", "FT_SIM_ROUNDING"):
            os.environ.pop(name, None)
            self.addCleanup(os.environ.pop, name, None)

    def losses(self, example, device, steps, data=support.FASHION, smaller=()):
        artifact = self.compile(os.path.join(support.EXAMPLES, example + ".ft"), *smaller, name=f"model.{device}")
        log = self.path(device + ".jsonl")
        support.run("ftrun", artifact, "--device", "sim" if device == "ptx" else "cpu", "--steps", steps, "--no-shuffle", "--data",
                    data, "--set", "train.log.every=1", "--set", "train.eval.every=0", "--log-jsonl", log, cwd=self.folder)
        return [line["loss"] for line in support.read_jsonl(log) if "loss" in line and not line.get("eval")]

    def follows(self, example, steps, worst, data=support.FASHION, smaller=()):
        self.are_close(example, self.losses(example, "so", steps, data, smaller), self.losses(example, "ptx", steps, data, smaller), steps, worst)

    def are_close(self, example, cpu, sim, steps, worst):
        self.assertEqual(len(cpu), steps)
        self.assertEqual(len(sim), steps)
        errors = [abs(a - b) / abs(a) for a, b in zip(cpu, sim)]
        print(f"{example}: {steps} steps, losses differ by {max(errors):.1e} at most", file=sys.stderr)
        self.assertLess(max(errors), worst)

    def test_mlp_follows_the_processor_and_learns(self):
        losses = self.losses("fashion_mlp", "ptx", 100)
        self.are_close("fashion_mlp", self.losses("fashion_mlp", "so", 30), losses[:30], 30, 1e-5)
        self.assertEqual(len(losses), 100)
        self.assertLess(sum(losses[-20:]) / 20, 0.75)

    def test_autoencoder_follows_the_processor(self):
        self.follows("autoencoder", 10, 1e-5)

    def test_cnn_follows_the_processor(self):
        self.follows("fashion_cnn", 3, 1e-5)

    def tables(self, **arrays):
        for name, array in arrays.items():
            numpy.save(self.path(name.replace("_", "-") + ".npy"), array)
        return self.path("")

    def test_resnet_follows_the_processor(self):
        random = numpy.random.default_rng(1)
        images, labels = random.integers(0, 256, (16, 3, 32, 32), numpy.uint8), random.integers(0, 10, 16).astype(numpy.int32)
        data = self.tables(train_images=images, train_labels=labels, valid_images=images, valid_labels=labels)
        self.follows("resnet_tiny", 3, 1e-4, data, ("--set", "train.batch=4", "-D", "width=8"))

    def test_regression_follows_the_processor(self):
        random = numpy.random.default_rng(2)
        x, y = random.normal(size=(200, 8)).astype(numpy.float32), random.normal(size=200).astype(numpy.float32)
        self.follows("regression", 10, 1e-5, self.tables(train_x=x, train_y=y, valid_x=x, valid_y=y))

    def test_gpt_of_bytes_follows_the_processor(self):
        for name in ("train.txt", "valid.txt"):
            with open(self.path(name), "wb") as file:
                file.write(b"the quick brown fox jumps over the lazy dog; " * 40)
        smaller = ("-D", "T=24", "-D", "D=32", "-D", "L=2", "-D", "heads=2", "--set", "train.batch=2")
        self.follows("gpt_bytes", 5, 1e-5, self.path(""), smaller)
        # approximations as wrong as hardware may be, and warps in another order
        os.environ.update(FT_SIM_ROUNDING="7", FT_SIM_SEED="7")
        self.follows("gpt_bytes", 5, 1e-5, self.path(""), smaller)

    def test_gpt2_follows_the_processor(self):
        tokens = numpy.random.default_rng(3).integers(0, 301, 2000).astype(numpy.uint16)
        for name in ("train.bin", "valid.bin"):
            tokens.tofile(self.path(name))
        smaller = ("-D", "T=20", "-D", "V=301", "-D", "D=32", "-D", "L=2", "-D", "heads=2", "-D", "p=0.1", "--set", "train.batch=2")
        self.follows("gpt2", 4, 1e-5, self.path(""), smaller)

    def test_hopper_follows_the_processor(self):
        """Convolutions large enough for wgmma, forward and both gradients: ftc chooses it by itself."""
        numpy.save(self.path("x.npy"), numpy.random.default_rng(3).standard_normal((64, 16, 16, 64), dtype="f4"))
        numpy.save(self.path("y.npy"), numpy.arange(64, dtype="i4") % 10)
        model = """
          model Wide(x: f32[B, 16, 16, 64], y: i32[B]) {
            x = Conv2d(64, 1, name="one")(rearrange(x, "b h w c -> b c h w"))
            x = Conv2d(128, 3, padding=1, name="conv")(relu(x))
            x = Linear(64, name="wide")(flatten(max_pool2d(relu(x), 8), from=1))
            loss = mean(cross_entropy(Linear(10, name="fc")(relu(x)), y))
          }
          data D { train = npy("x.npy", "y.npy") }
          train { model = Wide; data = D; batch = 64; seed = 3; optimizer = sgd(lr=0.05); precision = bf16 }
        """
        losses = {}
        for name, file, setting in (("cpu", "model.so", {}), ("sim", "model.ptx", {}), ("order", "model.ptx", {"FT_SIM_SEED": "3"}),
                                    ("rounding", "model.ptx", {"FT_SIM_ROUNDING": "3"})):
            if name in ("cpu", "sim"):
                self.compile(model, *(("--gpu", "sm_90a") if name == "sim" else ()), name=file)
            log = self.path(name + ".jsonl")
            os.environ.update(setting)
            support.run("ftrun", self.path(file), "--device", "cpu" if name == "cpu" else "sim", "--steps", 2, "--set",
                        "train.epochs=2", "--set", "train.log.every=1", "--log-jsonl", log, "--data", self.folder)
            losses[name] = [line["loss"] for line in support.read_jsonl(log)]
            for variable in setting:
                os.environ.pop(variable)
        with open(self.path("model.ptx")) as file:
            kernels = [body for body in file.read().split(".visible .entry ") if "wgmma.mma_async" in body]
        for kind in ("conv_conv", "conv_grad_weight", "conv_grad_input"):
            self.assertTrue([1 for body in kernels if kind in body.split("(", 1)[0]], f"no wgmma in {kind}")
        numpy.testing.assert_allclose(losses["sim"], losses["cpu"], rtol=2e-3)
        self.assertEqual(losses["order"], losses["sim"])
        numpy.testing.assert_allclose(losses["rounding"], losses["cpu"], rtol=2e-3)
        self.assertNotEqual(losses["rounding"], losses["sim"])

    def test_a_finding_ends_the_run(self):
        """A store moved out of its buffer is found in the first step, with its line in both files."""
        artifact = self.compile(os.path.join(support.EXAMPLES, "fashion_mlp.ft"), name="model.ptx")
        with open(artifact) as file:
            lines = file.read().split("\n")
        at = next(i for i, line in enumerate(lines) if "st.global.v4.f32" in line)
        lines[at] = lines[at].replace("]", "+16777216]", 1)
        with open(artifact, "w") as file:
            file.write("\n".join(lines))
        self.fails(1, f"model.ptx:{at + 1}: out of bounds: a store of 16 bytes at", "ftrun", artifact, "--device", "sim", "--data",
                   support.FASHION, "--steps", "1")


if __name__ == "__main__":
    support.main()
