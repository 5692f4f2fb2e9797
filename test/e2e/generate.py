"""ftrun generate: the tokens of the key/value cache are those of evaluating the whole window, and those
of a GPT-2 written here in PyTorch, for prompts shorter and longer than the window, on the CPU and the
simulator, in f32 and bf16."""
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import gpt
import support

NOTE = "no key/value cache"


def seen(window, count):
    """How many of `count` tokens the model sees: the oldest half of a full window is let go."""
    first = 0
    while count - first > window:
        first += window // 2
    return count - first


class Generate(support.Case):
    def weights(self, shapes, seed, scale=0.3):
        """Large enough for scores that differ."""
        random = numpy.random.RandomState(seed)
        made = {name: (random.randn(*shape) * scale + ("norm" in name or "ln_" in name)).astype(numpy.float32) for name, shape in shapes.items()}
        support.write_safetensors(self.path("w.safetensors"), made)
        return made

    def bytes_shapes(self, width, layers):
        shapes = {"bytes.weight": (256, width), "norm.weight": (width,)}
        for i in range(layers):
            for name, shape in [("norm1", (width,)), ("norm2", (width,)), ("attention.qkv", (3 * width, width)), ("attention.out", (width, width)),
                                ("mlp.up", (4 * width, width)), ("mlp.down", (width, 4 * width))]:
                shapes[f"layer.{i}.{name}.weight"] = shape
        return shapes

    def generate(self, artifact, prompt, count, *flags):
        text = ",".join(map(str, prompt))
        done = support.run("ftrun", "generate", artifact, "--weights", self.path("w.safetensors"), "--prompt-tokens", text, "--tokens", count, *flags)
        tokens = [int(word) for word in done.stdout.split()]
        self.assertEqual(tokens[: len(prompt)], list(prompt))
        self.assertEqual(len(tokens), len(prompt) + count)
        return tokens[len(prompt) :], done.stderr

    def same(self, artifact, lengths, count, *flags):
        random = numpy.random.RandomState(1)
        different = set()
        for length in lengths:
            prompt = random.randint(0, 256, length)
            cached, note = self.generate(artifact, prompt, count, *flags)
            windowed, _ = self.generate(artifact, prompt, count, "--no-cache", *flags)
            self.assertNotIn(NOTE, note)
            self.assertEqual(cached, windowed, f"prompt of {length}")
            different.update(cached)
        self.assertGreater(len(different), 5)  # a model that always says one thing would prove nothing

    def test_same_tokens_in_a_short_window(self):
        self.weights(self.bytes_shapes(32, 2), 1)
        artifact = self.compile(gpt.BYTES, "-D", "D=32", "-D", "L=2", "-D", "T=11", "--set", "train.batch=3")
        self.same(artifact, [1, 2, 10, 11, 12, 40], 30, "--temperature", "0")
        self.same(artifact, [3], 40, "--temperature", "1", "--seed", "5")

    def test_same_tokens_after_reading_the_prompt_in_pieces(self):
        self.weights(self.bytes_shapes(32, 1), 2)
        artifact = self.compile(gpt.BYTES, "-D", "D=32", "-D", "L=1", "-D", "T=150", "--set", "train.batch=1")
        self.assertIn("prefill:", support.run("ftrun", "info", artifact).stdout)
        self.same(artifact, [13, 14, 63, 64, 65, 66, 100, 129, 149, 151, 400], 6, "--temperature", "0")

    def test_a_short_prompt_does_not_meet_what_comes_later(self):
        """A short prompt is read with positions behind it. If what is computed there is no number, it is read again without them."""
        made = self.weights(gpt.gpt2_shapes(256, 150, 32, 1), 9)
        flags = [flag for size in ("V=256", "positions=150", "D=32", "L=1", "heads=4") for flag in ("-D", size)] + ["--set", "train.batch=1"]
        alone = self.compile(gpt.GPT2, *flags, "-D", "T=100")  # too short a window to be read in pieces
        artifact = self.compile(gpt.GPT2, *flags, "-D", "T=150", name="pieces.so")
        random = numpy.random.RandomState(3)
        for row, bad in ((None, 0), (45, numpy.nan), (63, numpy.inf)):
            if row:
                made["wpe.weight"][row] = bad
            support.write_safetensors(self.path("w.safetensors"), made)
            for length in (13, 30, 43):
                prompt = random.randint(0, 256, length)
                self.assertEqual(*(self.generate(one, prompt, 2, "--temperature", "0")[0] for one in (artifact, alone)))

    def test_same_tokens_in_bf16(self):
        self.weights(self.bytes_shapes(32, 1), 3)
        artifact = self.compile(gpt.BYTES, "-D", "D=32", "-D", "L=1", "-D", "T=20", "--set", "train.batch=1", "--set", "train.precision=bf16")
        self.same(artifact, [1, 15], 20, "--temperature", "0")

    def test_dropout_of_training_leaves_the_cache(self):
        """Attention that drops weights in training is plain attention where nothing is trained: it has kernels of its own, and the cache."""
        self.weights(self.bytes_shapes(32, 2), 8)
        with open(gpt.BYTES) as file:
            model = file.read().replace("causal=true", "causal=true, dropout=0.4")
        self.assertIn("dropout", model)
        flags = ["-D", "D=32", "-D", "L=2", "-D", "T=20", "--set", "train.batch=2"]
        artifact = self.compile(model, *flags)
        plain = self.compile(gpt.BYTES, *flags, name="plain.so")
        self.same(artifact, [1, 15, 30], 20, "--temperature", "0")
        prompt = [5, 200, 31]
        tokens = [self.generate(one, prompt, 30, "--temperature", "0", *more)[0] for one in (artifact, plain) for more in ([], ["--no-cache"])]
        self.assertEqual(tokens, tokens[:1] * 4)

    def test_texts_side_by_side(self):
        """Prompts of different lengths, more texts than go on at once, beyond the window: each text has the tokens it has alone."""
        self.weights(self.bytes_shapes(32, 2), 7)
        flags = ["-D", "D=32", "-D", "L=2", "-D", "T=150", "--set", "train.batch=4"]
        alone = self.compile(gpt.BYTES, *flags)
        beside = self.compile(gpt.BYTES, *flags, "--set", "generate.batch=3", name="beside.so")
        random = numpy.random.RandomState(2)
        prompts = [random.randint(0, 256, length) for length in (3, 130, 70, 1, 149)]
        wanted = [[*prompt, *self.generate(alone, prompt, 40, "--temperature", "0")[0]] for prompt in prompts]
        for artifact, more in ((beside, []), (alone, []), (alone, ["--no-cache"])):
            listed = [flag for prompt in prompts for flag in ("--prompt-tokens", ",".join(map(str, prompt)))]
            done = support.run("ftrun", "generate", artifact, "--weights", self.path("w.safetensors"), *listed, "--tokens", 40, "--temperature", "0", *more)
            self.assertEqual([[int(word) for word in line.split()] for line in done.stdout.splitlines()], wanted)

    def test_the_simulator_agrees(self):
        self.weights(self.bytes_shapes(16, 1), 4)
        flags = ["-D", "D=16", "-D", "L=1", "-D", "heads=2", "-D", "T=9", "--set", "train.batch=1"]
        prompt = [80, 3, 200]
        wanted, _ = self.generate(self.compile(gpt.BYTES, *flags), prompt, 9, "--temperature", "0")
        artifact = self.compile(gpt.BYTES, *flags, name="model.ptx")
        self.assertEqual(self.generate(artifact, prompt, 9, "--temperature", "0", "--device", "sim")[0], wanted)
        driver = os.path.join(support.BUILD, "fake", "libfake_cuda.so")  # steps run behind the host's back, in the simulator
        if os.path.exists(driver):
            os.environ.update(FT_CUDA_LIBRARY=driver, FT_CUBLASLT="own")
            self.assertEqual(self.generate(artifact, prompt, 9, "--temperature", "0", "--device", "cuda")[0], wanted)

    def test_tokens_of_gpt2_are_pytorchs(self):
        vocabulary, positions, width, layers, heads, window = 300, 40, 32, 2, 4, 24
        # what a token is like shall count, not what all have in common, nor that the table is the head too
        made = self.weights(gpt.gpt2_shapes(vocabulary, positions, width, layers), 5)
        made["ln_f.bias"] *= 0
        made["ln_f.weight"] = numpy.random.RandomState(6).randn(width).astype(numpy.float32)
        made["wte.weight"] *= 4
        support.write_safetensors(self.path("w.safetensors"), made)
        weights = {name: torch.from_numpy(value).double() for name, value in made.items()}
        sizes = [f"V={vocabulary}", f"positions={positions}", f"D={width}", f"L={layers}", f"heads={heads}", f"T={window}"]
        artifact = self.compile(gpt.GPT2, *[flag for size in sizes for flag in ("-D", size)], "--set", "train.batch=2")
        for prompt in ([7], [299, 0, 5, 5, 120]):
            text = list(prompt)
            for _ in range(60):
                x = torch.tensor([text[len(text) - seen(window, len(text)) :]])
                text.append(int(gpt.gpt2(weights, x, layers, heads)[0, -1].argmax()))
            self.assertEqual(self.generate(artifact, prompt, 60, "--temperature", "0")[0], text[len(prompt) :])
            self.assertGreater(len(set(text)), 5)

    def test_a_model_that_mixes_positions_goes_without(self):
        source = open(gpt.BYTES).read()
        line = "  logits = bytes(RMSNorm(name=\"norm\")(x))\n"
        mixed = source.replace(line, "  x = x + 0 * mean(x, axis=1, keepdims=true)\n" + line)
        self.assertNotEqual(source, mixed)
        self.weights(self.bytes_shapes(16, 1), 6)
        artifact = self.compile(mixed, "-D", "D=16", "-D", "L=1", "-D", "T=9", "--set", "train.batch=1")
        number = 1 + mixed[: mixed.index("0 * mean")].count("\n")
        _, note = self.generate(artifact, [1, 2], 20, "--temperature", "0")
        self.assertIn(NOTE, note)
        self.assertIn(f"line {number}: mean goes over positions or samples", note)


if __name__ == "__main__":
    support.main()
