"""Batches of one class of lengths, `pad(buckets=[...])`: one artifact holds the step for each. Which samples a batch has is what the definition in
runtime/data/visits.h gives, written again here; losses are those of the same samples padded to the longest, and so are the weights of a training on
the same batches, whatever the recipe; a resumed run, workers and ranks change nothing."""
import json
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import hosts
import orders
import support
import texts

T, SEED, BUCKETS, N = 16, 5, (4, 8, 16), 54
ALL = 2**64 - 1
DRIVER = os.path.join(support.BUILD, "fake", "libfake_cuda.so")
# a sample's class is its number; the metrics have the numbers of a batch, as digits base 5, and the length of its rows
MODEL = """
fn numbers(y, i) { return sum(where(floor(f32(y) / 9) == i, round(exp(1.6094379124341003 * (f32(y) - 9 * floor(f32(y) / 9)))), 0)) }
model M(t: i32[B, T=16], n: i32[B, T], l: i32[B], y: i32[B]) {
  inside = iota([B, T], axis=1) < reshape(l, [B, 1])
  x = reshape(Embedding(128, 8, name="e")(t), [B, 1, T, 8])
  a = reshape(attention(rope(x), rope(x), x, mask=reshape(inside, [B, 1, 1, T])), [B, T, 8])
  h = reshape(x, [B, T, 8]) + Linear(8, name="d")(relu(Linear(16, name="u")(LayerNorm(name="norm")(a))))
  pooled = Linear(8, name="p")(sum(where(reshape(inside, [B, T, 1]), h, 0), axis=1) / reshape(f32(l), [B, 1]))
  loss = mean(cross_entropy(Linear(128, name="o")(h + reshape(pooled, [B, 1, 8])), n, ignore=-1))
  metric m0 = numbers(y, 0); metric m1 = numbers(y, 1); metric m2 = numbers(y, 2); metric m3 = numbers(y, 3)
  metric m4 = numbers(y, 4); metric m5 = numbers(y, 5)
  metric rows = mean(f32(y) * 0 + T)
  output pooled
}
data D { train = jsonl("FILE", label="y", keys="tokens, targets, lengths, label") | PAD; DATA }
train { batch = BATCH; epochs = 2; seed = 5; RECIPE; log { every = 1 steps } }
distributed { DISTRIBUTED }
"""


def mix(value):
    value = value + 0x9E3779B97F4A7C15 & ALL
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & ALL
    value = (value ^ value >> 27) * 0x94D049BB133111EB & ALL
    return value ^ value >> 31


def order(count, seed, epoch):
    """The permutation of runtime/common/order.h: a Feistel network with cycle walking."""
    if count <= 1:
        return list(range(count))
    bits = max(6, (count - 1).bit_length())
    high_bits, low_bits = bits // 2, bits - bits // 2
    keys, state, out = [], mix(mix(seed) ^ epoch), []
    for _ in range(6):
        keys.append(state := mix(state))
    for value in range(count):
        while True:
            low, high = value & (1 << low_bits) - 1, value >> low_bits
            for i in range(0, 6, 2):
                high ^= mix(low ^ keys[i]) & (1 << high_bits) - 1
                low ^= mix(high ^ keys[i + 1]) & (1 << low_bits) - 1
            value = high << low_bits | low
            if value < count:
                break
        out.append(value)
    return out


def epoch_of(lengths, whole, epoch):
    """The batches of an epoch, each with the length of its rows."""
    classes = [min(sum(min(length, T) > b for b in BUCKETS), len(BUCKETS) - 1) for length in lengths]
    line = []
    for c in range(len(BUCKETS)):
        members = [i for i, of in enumerate(classes) if of == c]
        line += [members[k] for k in order(len(members), SEED ^ c + 1 << 32, epoch)]
    count = len(line) // whole
    left = len(line) - count * whole
    first = orders.words(epoch, 0)[0] * len(line) >> 64
    out = {(first + k) % len(line) for k in range(left)}
    kept = [i for k, i in enumerate(line) if k not in out]
    for batch in order(count, SEED ^ 0x9E3779B97F4A7C15, epoch):
        members = kept[batch * whole : (batch + 1) * whole]
        yield members, BUCKETS[classes[members[-1]]]


class Buckets(texts.Texts):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(3)
        lengths = [*random.integers(2, 5, 29), *random.integers(5, 9, 9), *random.integers(9, 20, 13), 16, 4, 8]  # some are cut off
        self.documents = [[int(c) for c in random.integers(97, 123, length)] for length in random.permutation(lengths)]
        self.write_documents("d.jsonl", range(N))

    def write_documents(self, name, members):
        self.write(name, "".join(json.dumps({"text": bytes(self.documents[i]).decode(), "y": i}) + "\n" for i in members))

    def model(self, pad="pad(buckets=[4, 8, 16])", recipe="optimizer = adam(lr=0.01)", data="", batch=4, distributed="data = any", file="d.jsonl", name="m.so", flags=()):
        words = {"PAD": pad, "RECIPE": recipe, "DATA": data, "BATCH": str(batch), "DISTRIBUTED": distributed, "FILE": file}
        text = MODEL
        for word, value in words.items():
            text = text.replace(word, value)
        return self.compile(text, *flags, name=name)

    def train(self, artifact, *flags):
        support.run("ftrun", *([artifact] if isinstance(artifact, str) else artifact), "--log-jsonl", "log", *flags, cwd=self.folder, env=texts.FIXED)
        return [{k: v for k, v in line.items() if k != "samples_per_s"} for line in support.read_jsonl(self.path("log")) if "loss" in line and not line.get("eval")]

    @staticmethod
    def members(line):
        """The numbers of a batch's samples, sorted."""
        return sorted(9 * i + digit for i in range(6) for digit in range(9) for _ in range(int(line[f"m{i}"]) // 5**digit % 5))

    def batches(self, whole, epochs=2):
        return [batch for epoch in range(epochs) for batch in epoch_of([len(d) for d in self.documents], whole, epoch)]

    def assert_batches(self, lines, whole):
        want = self.batches(whole)
        self.assertEqual([(self.members(line), line["rows"]) for line in lines], [(sorted(members), rows) for members, rows in want])

    def test_order(self):
        """Every batch is that of the definition, of one length; nearly every sample is seen once an epoch, and those left out are others."""
        lines = self.train(self.model(recipe="optimizer = sgd(lr=0)"))
        self.assert_batches(lines, 4)
        self.assertEqual(len(lines), 2 * (N // 4))
        for epoch in (lines[: N // 4], lines[N // 4 :]):
            seen = [i for line in epoch for i in self.members(line)]
            self.assertEqual(len(set(seen)), N // 4 * 4)
        counts = numpy.zeros(N, int)
        for epoch in range(2000):
            for members, _ in epoch_of([len(d) for d in self.documents], 10, epoch):
                counts[members] += 1
        self.assertGreater(counts.min(), 2000 * 50 / 54 - 5 * (2000 * 4 / 54) ** 0.5)  # each is left out as often

    def test_values(self):
        """The loss of a batch is the mean over its tokens, as that of the same samples padded to the longest; of samples one by one."""
        lines = self.train(self.model(recipe="optimizer = sgd(lr=0)"), "--save", "w")
        alone = self.train(self.model("pad", "optimizer = sgd(lr=0)", "shuffle = false", 1, name="one.so"), "--init", "w", "--epochs", "1")
        targets = [max(min(len(d), T + 1) - 1, 0) for d in self.documents]
        self.assertEqual([self.members(line) for line in alone], [[i] for i in range(N)])
        for line in lines:
            members = [i for i in self.members(line) if targets[i]]
            want = sum(alone[i]["loss"] * targets[i] for i in members) / sum(targets[i] for i in members)
            self.assertAlmostEqual(line["loss"], want, places=5)

    def assert_trains_alike(self, recipe, tolerance=2e-5, whole=4, flags=(), run=(), **options):
        """The training with buckets against one with plain `pad` on a file that has the batches in their order."""
        self.write_documents("in-order.jsonl", [i for members, _ in self.batches(whole) for i in members])
        short = self.train(self.model(recipe=recipe, flags=flags, **options), *run, "--save", "short")
        plain = self.train(self.model("pad", recipe, "shuffle = false", file="in-order.jsonl", name="plain.so", **{k: v for k, v in options.items() if k == "batch"}), "--epochs", "1", "--save", "plain")
        self.assertEqual(len(short), len(plain))
        numpy.testing.assert_allclose([line["loss"] for line in short], [line["loss"] for line in plain], rtol=tolerance)
        short, plain = support.read_safetensors(self.path("short")), support.read_safetensors(self.path("plain"))
        for name in plain:
            numpy.testing.assert_allclose(short[name], plain[name], rtol=50 * tolerance, atol=5 * tolerance, err_msg=name)

    def test_trains_as_padded_to_the_longest(self):
        cases = (
            ("optimizer = adamw(lr=0.01, weight_decay=0.1); clip = norm(0.5); schedule = cosine(warmup=3 steps); ema = 0.9; accumulate = 2", {"batch": 2}),
            ("optimizer = sgd(lr=0.05, momentum=0.9); freeze = \"e.*\"; recompute = auto(budget=4 MiB)", {"flags": ("--disable=fuse,memplan,storage,schedule",)}),
            ("optimizer = muon(lr=0.01); recompute = block; precision = bf16", {"tolerance": 5e-3}), ("optimizer = sgd(lr=0.05); precision = fp16", {"tolerance": 5e-3}),
        )
        for recipe, options in support.of_this_turn(cases, 3):
            with self.subTest(recipe, **options):
                self.assert_trains_alike(recipe, **options)

    def test_simulator(self):
        """A PTX artifact, and the cuda device over the driver without a GPU, which launches captured graphs."""
        self.assert_trains_alike("optimizer = adam(lr=0.01); accumulate = 2", batch=2, name="m.ptx", run=("--device", "sim"))
        simulated = self.train(self.path("m.ptx"), "--device", "sim")
        support.run("ftrun", self.path("m.ptx"), "--device", "cuda", "--log-jsonl", "cuda", cwd=self.folder, env={**texts.FIXED, "FT_CUDA_LIBRARY": DRIVER, "FT_CUBLASLT": "own"})
        losses = [line["loss"] for line in support.read_jsonl(self.path("cuda")) if "loss" in line]
        self.assertEqual(losses, [line["loss"] for line in simulated])

    def test_hyper(self):
        """The length may be a hyper that blocks read, too."""
        want = self.train(self.model(), "--epochs", "1")
        with open(self.path("model.ft")) as file:
            text = file.read().replace("T=16", "T").replace("\nmodel", "\nhyper T: int = 16\nblock Inside()(l: i32[B]) { return iota([B, T], axis=1) < reshape(l, [B, 1]) }\nmodel")
        text = text.replace("inside = iota([B, T], axis=1) < reshape(l, [B, 1])", "inside = Inside()(l)")
        self.assertIn("Inside()(l)\n", text)
        self.assertEqual(self.train(self.compile(text), "--epochs", "1"), want)

    def test_resumed_with_workers(self):
        recipe = "optimizer = adam(lr=0.01); accumulate = 2"
        artifact = self.model(recipe=recipe, data="workers = 0", batch=2)
        whole = self.train(artifact, "--save", "whole")
        self.assert_batches(whole, 4)
        for workers in support.of_this_turn((1, 4), 2):
            other = self.model(recipe=recipe, data=f"workers = {workers}; prefetch = 3", batch=2, name="w.so")
            folder = "train.checkpoint.dir=" + self.path(f"d{workers}")
            self.train(other, "--steps", "9", "--set", folder)
            self.assertEqual(self.train(artifact if workers == 1 else other, "--resume", self.path(f"d{workers}"), "--save", "again"), whole)
            with open(self.path("whole"), "rb") as one, open(self.path("again"), "rb") as two:
                self.assertEqual(one.read(), two.read())
        plain = self.model("pad", recipe, batch=2, name="plain.so")
        self.fails(1, "or in another order (rows of 4, 8, 16), this one has: all of its files", "ftrun", plain, "--resume", self.path(f"d{workers}"), cwd=self.folder)

    def test_ranks(self):
        if not hosts.HAS_MPI:
            self.skipTest("no MPI: libft-mpi.so or mpirun is missing")
        whole = self.train(self.model(), "--save", "one")
        for distributed in support.of_this_turn(("data = any", "data = 2; zero = 1", "data = 2; zero = 3", "tensor = 2"), 3):
            with self.subTest(distributed):
                artifact = self.model(distributed=distributed, batch=4 if "tensor" in distributed else 2, name="r.so")
                ranks = self.train(["--ranks", "2", artifact], "--save", "two")
                self.assert_batches(ranks, 4)
                numpy.testing.assert_allclose([line["loss"] for line in ranks], [line["loss"] for line in whole], rtol=2e-5)
                one, two = support.read_safetensors(self.path("one")), support.read_safetensors(self.path("two"))
                for name in one:
                    numpy.testing.assert_allclose(two[name], one[name], rtol=1e-3, atol=1e-4, err_msg=name)

    def test_other_ways_to_run(self):
        """--check=nan, statistics by layer, traces and --overfit-batch run the step of the batch's length, too."""
        artifact = self.model(recipe="optimizer = adam(lr=0.01); log { layers = 3 steps }")
        whole = self.train(artifact, "--set", "train.log.layers=0")
        for flags in (["--check=nan"], [], ["--trace", self.path("trace.pftrace")]):
            with self.subTest(flags):
                self.assertEqual(self.train(artifact, *flags), whole)
        once = self.train(artifact, "--overfit-batch", "--steps", "4")
        self.assertEqual([(line["rows"], self.members(line)) for line in once], [(whole[0]["rows"], self.members(whole[0]))] * 4)
        support.run("ftrun", "--find-lr", artifact, cwd=self.folder)
        support.run("ftrun", "bench", artifact, "--steps", "2", cwd=self.folder)

    def test_said(self):
        artifact = self.model()
        lengths = [min(len(d), T) for d in self.documents]
        short = sum(next(b for b in BUCKETS if b >= length) for length in lengths)
        said = support.run("ftrun", artifact, "--dry-run", cwd=self.folder).stdout
        self.assertIn(f"of which {100 - 100 * sum(lengths) / (N * T):.1f} % are padding, and {100 - 100 * sum(lengths) / short:.1f} % in rows of 4, 8 and 16", said)
        said = support.run("ftrun", "info", artifact).stdout
        self.assertIn("pad(length=0, token=0, buckets=(4, 8, 16))", said)
        self.assertIn("step, rows of 4", said)
        said = support.run("ftc", self.path("model.ft"), "--memory").stdout
        self.assertIn("a step with rows of 4 needs ", said)

    def test_refused(self):
        for text, needle in (
            (MODEL.replace("T=16", "16").replace("T,", "16,").replace("T]", "16]").replace("+ T", ""), "needs a name that the model goes by: T=16, or a hyper T"),
            (MODEL.replace("  x =", "  param w: [T, 8] = zeros\n  x = mean(w) +"), "'w' is f32[16,8] with T = 16 and f32[4,8] with T = 4, but all sizes share parameters and states"),
            (MODEL.replace("  x =", "  if T > 8 { param w: [8] = zeros }\n  x ="), "'w' is there with T = 16 only"),
            (MODEL.replace("l: i32[B]", "m: i32[B, T / 4]").replace("(l", "(m[:, 0]"), "input 'm' is i32[4,4] with T = 16 and i32[4,1] with 4: an input's size may be T itself, but not follow from it"),
            (MODEL.replace("  a =", "  check = reshape(t, [B, 2, 8])\n  a ="), "with T = 4, for pad(buckets=...)"),
            (MODEL.replace("PAD", "pad(buckets=[4, 8])"), "the last length is that of the model's rows, which is 16 in input 't', not 8"),
            (MODEL.replace("PAD", "pad(buckets=[8, 4, 16])"), "buckets must be two to eight lengths, each longer than the one before,"),
            (MODEL.replace("PAD", "pad(buckets=16)"), "buckets must be two to eight lengths"), (MODEL.replace("PAD", "pad(buckets=[])"), "buckets must be two to eight lengths"),
            (MODEL.replace("PAD", "pad(buckets=[1, 2, 3, 4, 5, 6, 7, 8, 16])"), "buckets must be two to eight lengths"),
            (MODEL.replace("DATA", "valid = 0.1 of train | pad(buckets=[8, 16])"), "buckets are for training: evaluations take rows of one length, so leave them out of valid"),
            (MODEL.replace("DATA", "order = balanced(y)"), "pad(buckets=...) is an order of its own, and data.order says another one"),
            (MODEL.replace("DISTRIBUTED", "pipeline = 2"), "pad(buckets=...) and distributed.pipeline do not go together"),
        ):
            with self.subTest(needle):
                for word, value in {"PAD": "pad(buckets=[4, 8, 16])", "RECIPE": "optimizer = sgd", "DATA": "", "BATCH": "4", "DISTRIBUTED": "", "FILE": "d.jsonl"}.items():
                    text = text.replace(word, value)
                self.write("bad.ft", text)
                self.fails(1, needle, "ftc", self.path("bad.ft"), "-o", self.path("bad.so"))
        artifact = self.model()
        self.fails(1, "pad(buckets=...) needs data.shuffle=true, and no --no-shuffle", "ftrun", artifact, "--no-shuffle", cwd=self.folder)
        self.fails(1, "buckets are an order of their own", "ftrun", artifact, "--set", "data.order=balanced(y)", cwd=self.folder)


if __name__ == "__main__":
    support.main()
