"""batch = auto and ftc --find-batch: every row of the table is what `ftc --memory` says of that batch, what is chosen fits and the next
step does not, ftrun takes no more, training is that of the same batch by hand; and what is refused."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 64], y: i32[B]) {
  h = relu(Linear(256, name="a")(x))
  loss = mean(cross_entropy(Linear(10, name="b")(h), y))
}
data D { train = npy("x.npy", "y.npy") }
train { BATCH; steps = 4; seed = 5; optimizer = adam(lr=0.01); log { every = 1 steps } }
"""
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def in_bytes(number, unit):
    return float(number) * UNITS[unit]


class Batch(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(2)
        numpy.save(self.path("x.npy"), random.standard_normal((8192, 64)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 10, 8192).astype("i4"))

    def write(self, batch):
        with open(self.path("model.ft"), "w") as file:
            file.write(MODEL.replace("BATCH", batch))
        return self.path("model.ft")

    def ftc(self, batch, *flags):
        return support.run("ftc", self.write(batch), *flags)

    def rows(self, said):
        return [(int(n), (in_bytes(size, unit), in_bytes(0.0051, unit)), note.strip()) for n, size, unit, note in
                re.findall(r"^ +(\d+) +([\d.]+) (B|KiB|MiB|GiB) +\S+ +\S+( +largest that fits| +does not fit)?$", said, re.M)]

    def needs(self, batch, target="cpu"):
        """By `ftc --memory`, and on the CPU five more batches: one in use, four prepared ahead."""
        said = support.run("ftc", self.write(f"batch = {batch}"), "--memory", *(["--gpu", "sm_80"] if target == "gpu" else [])).stdout
        lines = {name: int(count) for name, count in re.findall(r"^(\w[\w, ]*?) +(\d+)  ", said, re.M)}
        return lines["total"] + (5 * lines["inputs, one batch"] if target == "cpu" else 0)

    def check_rows(self, said, budget, target="cpu"):
        rows = self.rows(said)
        self.assertGreater(len(rows), 5, said)
        for batch, (size, rounding), note in rows:
            want = self.needs(batch, target)
            self.assertLess(abs(size - want), rounding, (batch, size, want))
            self.assertEqual(note == "does not fit", want > budget, (batch, said))
        chosen = [batch for batch, _, note in rows if note == "largest that fits"]
        self.assertEqual(len(chosen), 1, said)
        fits = max(batch for batch, _, note in rows if note != "does not fit")
        self.assertEqual(chosen[0], fits)
        above = min(batch for batch, _, note in rows if note == "does not fit")
        power = 1 << (fits.bit_length() - 1)
        self.assertEqual(above - fits, max(power // 4, 1), said)
        return chosen[0]

    def test_the_largest_that_fits(self):
        for budget in (4, 10, 23):
            said = self.ftc(f"batch = auto(memory = {budget} MiB)", "-o", self.path("model.so")).stderr
            chosen = self.check_rows(said, budget << 20)
            self.assertIn(f"chosen, as by hand: --set train.batch={chosen}\n", said)
            shown = support.run("ftrun", "info", self.path("model.so")).stdout
            self.assertRegex(shown, rf"train\.batch\W+{chosen}\b")
            self.assertIn(f"memory={budget}MiB", shown)
            first = open(self.path("model.so"), "rb").read()
            self.ftc(f"batch = auto(memory = {budget} MiB)", "-o", self.path("model.so"))
            self.assertEqual(open(self.path("model.so"), "rb").read(), first)
            said = support.run("ftrun", self.path("model.so"), "--log-jsonl", "auto", cwd=self.folder).stdout
            taken = re.search(r"memory ([\d.]+) (kB|MB) for the model", said)
            self.assertLessEqual(float(taken[1]) * (1e3 if taken[2] == "kB" else 1e6), budget * 2**20 + 5e4)
            self.ftc(f"batch = {chosen}", "-o", self.path("hand.so"))
            support.run("ftrun", self.path("hand.so"), "--log-jsonl", "hand", cwd=self.folder)
            self.assertEqual(*([line["loss"] for line in support.read_jsonl(self.path(name))] for name in ("auto", "hand")))

    def test_the_gpus_memory(self):
        said = self.ftc("batch = auto(memory = 30 MiB)", "-o", self.path("model.ptx")).stderr
        self.check_rows(said, 30 << 20, "gpu")
        said = self.ftc("batch = auto(most = 96)", "-o", self.path("model.ptx")).stderr
        self.assertIn("memory 79.00 GiB, of an NVIDIA A100 SXM 80 GB, less 1 GiB for its driver and libraries", said)
        self.assertIn("--set train.batch=64", said)
        said = self.ftc("batch = auto(gpu = rtx4090, most = 16)", "-o", self.path("model.ptx")).stderr
        self.assertIn("memory 23.00 GiB, of an NVIDIA GeForce RTX 4090", said)

    def test_the_table(self):
        said = self.ftc("batch = 32", "--find-batch").stdout
        self.assertEqual([batch for batch, _, _ in self.rows(said)], [1 << i for i in range(11)])
        said = self.ftc("batch = auto(memory = 4 MiB)", "--find-batch").stdout
        self.check_rows(said, 4 << 20)
        said = support.run("ftrun", self.write("batch = auto(memory = 4 MiB)"), "--find-batch", "--device", "cpu", cwd=self.folder).stdout
        self.check_rows(said, 4 << 20)
        said = support.run("ftc", self.write("batch = 32"), "--find-batch", "--set", "train.batch.auto=memory=4MiB most=8").stdout
        self.assertEqual([batch for batch, _, _ in self.rows(said)], [1, 2, 4, 8])

    def test_the_command_line_wins(self):
        done = self.ftc("batch = auto(memory = 4 MiB)", "-o", self.path("model.so"), "--set", "train.batch=24")
        self.assertNotIn("chosen", done.stderr)
        self.assertRegex(support.run("ftrun", "info", self.path("model.so")).stdout, r"train\.batch\W+24\b")
        done = self.ftc("batch = 32", "-o", self.path("model.ptx"), "--set", "train.batch=auto", "--set", "train.batch.auto=most=4")
        self.assertIn("--set train.batch=4", done.stderr)

    def test_what_is_refused(self):
        for batch, flags, needle in (("batch = auto", ["-o", "m.so"], "how much memory may it take on a CPU? Say auto(memory = 8 GiB)"),
                                     ("batch = auto(memory = 100 KiB)", ["-o", "m.so"], "a batch of 1 needs "),
                                     ("batch = auto(memory = 1 GiB, least = 3)", ["-o", "m.so"], "'least=3': it takes memory=8GiB, gpu=h100 and most=512"),
                                     ("batch = auto(most = 0, memory = 1 GiB)", ["-o", "m.so"], "expected a batch from 1 to"),
                                     ("batch = auto(memory = 1 GiB, gpu = h100)", ["-o", "m.so"], "gpu=h100 does not run what is compiled here, a .so"),
                                     ("batch = auto(memory = 1 GiB, gpu = h1)", ["-o", "m.ptx"], "h1"),
                                     ("batch = auto", ["-o", "m.ptx", "--gpu", "sm_87"], "how much memory a GPU for sm_87 has is not known here"),
                                     ("batch = auto(8)", ["-o", "m.so"], "auto takes NAME = VALUE, such as memory = 8 GiB"), ("batch = many", ["-o", "m.so"], "many"),
                                     ("batch = auto(memory = 1 GiB)", ["-o", "m.so", "--set", "distributed.auto=gpus=2"], "distributed.auto chooses the micro-batch itself")):
            self.fails(1, needle, "ftc", self.write(batch), *flags, cwd=self.folder)


if __name__ == "__main__":
    support.main()
