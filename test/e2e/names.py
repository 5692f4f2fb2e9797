"""No name that the language accepts changes what happens. Every reserved word, and every name that the compiler, the
plan, the log or a checkpoint uses, is declared as everything that can be declared: either the program is refused at the
name, with a sentence, or it trains, saves, resumes and predicts exactly as with a neutral name."""
import json
import os
import re
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support


def source_of(name):
    with open(os.path.join(support.ROOT, name)) as file:
        return file.read()


KEYWORDS = re.findall(r'^"([a-z]+)" TOKEN', source_of("frontend/ft.l"), re.M)
OWN = re.findall(r'"@?([a-z_]+)\.?"', source_of("base/own.h"))
WORDS = sorted({*KEYWORDS, *OWN, *"""ema_loss narrow decode position part key value rate eval_ema micro prefill weight bias moment
    sgd adam adamw lion adagrad rmsprop muon m v sum momentum format optimizer seed batch samples shuffled best best_of
    owes_evaluation __metadata__ main ft_plan plan artifact kernel k0 loop row column workspace arena work float int
    double void const memcpy exp f32 i32 bool training pi inf ones B T fold valid test nan null true_ label x y i h
    running_mean num_batches_tracked per_token transformer""".split()})

MODEL = """
%(file)s
block Zpair()(t: [N, D]) { return BatchNorm(name="zbn")(Linear(6, name="zfc", bias=false, init=constant(0.1))(t)) }
model Zmodel(zx: f32[ZB, ZD=6], zy: i32[ZB]%(inputs)s) {
  zh = zx
  %(body)s
  zlogits = BatchNorm(name="zn")(Linear(4, name="zl")(zh))
  %(late)s
  loss = mean(cross_entropy(zlogits, zy))
  metric zmetric = mean(argmax(zlogits, axis=-1) == zy)
  output zlogits
}
data Zdata { train = npy("zx.npy", "zy.npy"%(files)s); valid = npy("zx.npy", "zy.npy"%(files)s) }
train { model = Zmodel; batch = 8; accumulate = 2; steps = 6; optimizer = adamw(lr=0.01); precision = fp16; ema = 0.9
  schedule = plateau(patience=0, threshold=0.5); eval every 2 steps; checkpoint { every = 3 steps; keep = 5 } }
"""
# kind: where it stands in MODEL, and what is written there for the name W, number I
KINDS = {
    "hyper": dict(file="hyper W: float = 0.0I", body="zh = zh * (1 + 0.1 * W)"),
    "function": dict(file="fn W(t) { return t * 1.0I }", body="zh = W(zh)"),
    "block": dict(file="block W()(t) { return t * 1.0I }", body="zh = W()(zh)"),
    "dimension": dict(inputs=", zI: f32[ZB, W=6]", body="zh = zh + zI * (0.001 * W)", files=', "zextra.npy"'),
    "input": dict(inputs=", W: f32[ZB, 6]", body="zh = zh + 0.01 * W", files=', "zextra.npy"'),
    "variable": dict(body="W = 0.01 * zh\n  zh = zh + W"),
    "counter": dict(body="repeat W in 0..2 { zh = zh * (1 + 0.01 * W) }"),
    "prefix": dict(body="repeat zi in 0..2 as W { param zw: [6] = constant(0.1)\n zh = zh + 0.01 * zw }"),
    "param": dict(body="param W: [6] = constant(0.1)\n  zh = zh + 0.1 * W"),
    "state": dict(body="state W: [6] = constant(0.1)\n  update W = 0.9 * W + 0.1 * mean(zx, axis=0)\n  zh = zh + 0.1 * W"),
    "layer": dict(body="W = Zpair()\n  zh = zh + 0.1 * W(zh)"),
    "named": dict(body='zh = zh + 0.1 * Zpair(name="W")(zh)'),
    "metric": dict(late="metric W = mean(zh) + I", each=10),
    "output": dict(late="output W = zh + I"),
}
# What a program with such a name means by itself: a user's own definition takes the place of a standard one.
MEANT = {("variable", "loss"), ("output", "loss"), ("metric", "loss")}


def program(kind, names):
    parts = {key: "" for key in ("file", "inputs", "files", "body", "late")}
    for i, name in enumerate(names):
        for key, text in KINDS[kind].items():
            if key in parts:
                parts[key] += re.sub(r"\bW\b", name, text).replace("I", str(i + 1), 1 if key != "body" else -1) \
                    + ("" if key in ("inputs", "files") else "\n")
    return MODEL % parts


class Names(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(1)
        numpy.save(self.path("zx.npy"), random.standard_normal((48, 6)).astype("f4"))
        numpy.save(self.path("zextra.npy"), random.standard_normal((48, 6)).astype("f4"))
        numpy.save(self.path("zy.npy"), random.integers(0, 4, 48).astype("i4"))
        numpy.save(self.path("eight.npy"), random.standard_normal((8, 6)).astype("f4"))

    def accepted(self, kind, words):
        """Those that the language takes; the others must be refused at their place, with a sentence."""
        with open(self.path("one.ft"), "w") as file:
            file.write(program(kind, words))
        done = support.run("ftc", self.path("one.ft"), "--emit=ir", "--stop-after=optimizer", "-o", os.devnull, check=False)
        if done.returncode == 0:
            return words
        if len(words) > 1:
            middle = len(words) // 2
            return self.accepted(kind, words[:middle]) + self.accepted(kind, words[middle:])
        self.assertEqual(done.returncode, 1, f"{kind} {words}: {done.stderr}")
        self.assertRegex(done.stderr, r"one\.ft:\d+:\d+: error: .{10}", f"{kind} {words}")
        self.assertIn("^", done.stderr, f"{kind} {words}")
        self.assertNotIn("fault of ft", done.stderr, f"{kind} {words}")
        return []

    def outcome(self, kind, names, back):
        """All that can be seen of a training, with the names given back."""
        artifact = self.compile(program(kind, names))
        shown = {"ema_" * i + word: "ema_" * i + other for word, other in back.items() for i in (0, 1)} if kind == "metric" else {}
        log, weights, ema, runs = (self.path(name) for name in ("log", "weights", "ema", "runs"))
        subprocess.run(["rm", "-rf", runs], check=True)
        flags = ["--data", self.folder, "--save", weights, "--save-ema", ema, "--log-jsonl", log, "--set", "train.log.every=1",
                 "--set", f"train.checkpoint.dir={runs}"]
        support.run("ftrun", artifact, *flags)

        def named(tensors):
            parted = {key: key.partition(".") for key in tensors}
            return {back.get(first, first) + dot + rest: tensors[key].tobytes()
                    for key, (first, dot, rest) in parted.items()}
        whole = named(support.read_safetensors(weights)), named(support.read_safetensors(ema))
        with open(log) as file:
            lines = file.readlines()

        def once(pairs):
            keys = [key for key, _ in pairs]
            self.assertEqual(len(keys), len(set(keys)), f"{kind}: a key stands twice in {keys}")
            return dict(pairs)
        for line in lines:
            json.loads(line, object_pairs_hook=once)
        numbers = [{shown.get(key, key): value for key, value in line.items() if key != "samples_per_s"}
                   for line in support.read_jsonl(log)]
        support.run("ftrun", artifact, *flags, "--resume", os.path.join(runs, "step-00000003.safetensors"))
        again = named(support.read_safetensors(weights)), named(support.read_safetensors(ema))
        self.assertEqual(whole, again, f"{kind}: a resumed run ends elsewhere")
        evaluated = support.run("ftrun", "eval", artifact, "--data", self.folder, "--weights", weights, "--log-jsonl", log)
        self.assertEqual(evaluated.returncode, 0)
        numbers += [{shown.get(key, key): value for key, value in line.items()} for line in support.read_jsonl(log)]
        return whole, numbers

    def test_names(self):
        """With FT_TURN a quarter of the kinds."""
        for kind, texts in support.of_this_turn(KINDS.items(), 4):
            each, neutral = texts.get("each", 50), {}
            words = [word for word in KEYWORDS if self.accepted(kind, [word])]  # most are refused: halves of them would be, too
            words += self.accepted(kind, [word for word in WORDS if (kind, word) not in MEANT and word not in KEYWORDS])
            self.assertGreater(len(words), 15, kind)
            for at in range(0, len(words), each):
                some = words[at:at + each]
                if len(some) not in neutral:
                    neutral[len(some)] = self.outcome(kind, [f"zn{i}" for i in range(len(some))], {})
                back = {word: f"zn{i}" for i, word in enumerate(some)}
                got = self.outcome(kind, some, back)
                for want, have in zip(neutral[len(some)], got):
                    self.assertEqual(want, have, f"{kind}: {some}")


if __name__ == "__main__":
    support.main()
