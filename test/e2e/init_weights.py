"""--init takes what fits: from several files, sharded ones, under other names, a new head on a backbone; says what it took
and what not; and refuses the rest, damaged indices among it, in a sentence."""
import json
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
hyper classes: int = 3
block Body()(x: [B, D]) {
  x = relu(Linear(6, name="fc1")(x))
  return relu(Linear(5, name="fc2")(x))
}
model M(x: f32[B, 4], y: i32[B]) {
  logits = Linear(classes, name="head")(Body(name="backbone")(x))
  loss = mean(cross_entropy(logits, y))
}
data D { train = npy("x.npy", "y.npy") }
train { batch = 4; epochs = 1; seed = 5; optimizer = sgd(lr=0.1); eval = none }
"""
SHAPES = {"backbone.fc1.weight": (6, 4), "backbone.fc1.bias": (6,), "backbone.fc2.weight": (5, 6), "backbone.fc2.bias": (5,), "head.weight": (3, 5), "head.bias": (3,)}
random = numpy.random.RandomState(3)


def tensors(prefix=""):
    return {prefix + name: random.uniform(-1, 1, shape).astype("f4") for name, shape in SHAPES.items()}


class InitWeights(support.Case):
    def setUp(self):
        super().setUp()
        numpy.save(self.path("x.npy"), random.randn(8, 4).astype("f4"))
        numpy.save(self.path("y.npy"), (numpy.arange(8) % 3).astype("i4"))
        self.artifact = self.compile(MODEL)

    def write(self, name, values):
        support.write_safetensors(self.path(name), values)
        return self.path(name)

    def start(self, *flags, artifact=None, **options):
        """What a training of 0 steps begins with, and what it said."""
        done = support.run("ftrun", artifact or self.artifact, "--data", self.folder, "--steps", "0", "--save", self.path("start"), *flags, **options)
        return support.read_safetensors(self.path("start")), done.stdout

    def refused(self, needle, *flags, code=1):
        return self.fails(code, needle, "ftrun", self.artifact, "--data", self.folder, "--steps", "0", *flags)

    def same(self, got, want):
        for name, value in want.items():
            numpy.testing.assert_array_equal(got[name], value, name)

    def index(self, weight_map, name="model.safetensors.index.json", **more):
        with open(self.path(name), "w") as file:
            json.dump({"metadata": {"total_size": 1}, "weight_map": weight_map, **more}, file)
        return self.path(name)

    def test_states_that_are_missing(self):
        """Evaluations read running statistics, so weights without them are refused there; trainings make them anew, and say so. Whole numbers are no weights."""
        norm = MODEL.replace('"fc1")(x))', '"fc1")(BatchNorm(name="bn")(x)))')
        artifact = self.compile(norm, name="norm.so")
        all = {**tensors(), **{f"backbone.bn.{n}": numpy.full(4, k + 2, "f4") for k, n in enumerate(("weight", "bias", "running_mean", "running_var"))}}
        some = {n: v for n, v in all.items() if "running" not in n}
        path, needle = self.write("some.safetensors", some), "some.safetensors lacks backbone.bn.running_mean, backbone.bn.running_var, which evaluations of the model read"
        self.fails(1, needle + "; a training with --init makes them anew", "ftrun", "eval", artifact, "--data", self.folder, "--split", "train", "--weights", path)
        got, said = self.start("--init", path, artifact=artifact)
        self.assertIn("states that are not there, begin as without --init: backbone.bn.running_mean", said)
        self.same(got, {**some, "backbone.bn.running_var": numpy.ones(4, "f4")})
        self.start("--init", path, artifact=self.compile(norm, "--set", "train.statistics=true", name="statistics.so"))
        self.same(self.start("--init", self.write("all.safetensors", all), artifact=artifact)[0], all)
        wide = self.write("wide.safetensors", {**all, "backbone.bn.running_mean": numpy.ones(5, "f4")})
        self.assertIn("of another shape, begin as without --init: backbone.bn.running_mean ([4], there [5])", self.start("--init", wide, "--init-mismatch", "keep", artifact=artifact)[1])
        for kind, name in (("u1", "u8"), ("i1", "i8"), ("i4", "i32")):
            self.refused(f"head.bias is {name}[3] but the model's is f32[3]", "--init", self.write("whole.safetensors", {**tensors(), "head.bias": numpy.ones(3, kind)}))

    def test_a_new_head(self):
        fresh, _ = self.start()
        old = tensors()
        old["head.weight"], old["head.bias"] = numpy.ones((10, 5), "f4"), numpy.ones(10, "f4")
        path = self.write("old.safetensors", old)
        self.refused("head.weight is f32[10,5] but the model's is f32[3,5]", "--init", path)
        self.refused("head.weight is f32[10,5] but the model's is f32[3,5]", "--init", path, "--init-missing", "keep")
        got, said = self.start("--init", path, "--init-mismatch", "keep")
        self.assertIn("4 of the model's 6 parameters were taken", said)
        self.assertIn("of another shape, begin as without --init: head.weight ([3,5], there [10,5]), head.bias ([3], there [10])", said)
        self.same(got, {n: v for n, v in old.items() if n.startswith("backbone")})
        self.same(got, {n: v for n, v in fresh.items() if n.startswith("head")})
        # left out by name instead: then they are missing
        self.refused("lacks 2 of the model's 6 parameters: head.weight", "--init", path, "--init-rename", "head.*=")
        got, said = self.start("--init", path, "--init-rename", "head.*=", "--init-missing=keep")
        self.assertIn("4 of the model's 6 parameters were taken; 2 were left out by name", said)
        self.assertRegex(said, r"not there, begin as without --init: head\.(bias|weight), head\.(bias|weight)")
        self.same(got, {n: v for n, v in fresh.items() if n.startswith("head")})
        self.refused("lacks 2 of", "--init", path, "--init-rename", "head.*=", "--init-missing", "error")

    def test_a_name_that_is_near(self):
        """A missing parameter is told with what the file has under a name like it, but not with another layer's own parameter."""
        some = tensors()
        lacking = some.pop("backbone.fc2.weight")
        self.refused("parameters: backbone.fc2.weight (--init-missing", "--init", self.write("some", some))
        self.refused("parameters: backbone.fc2.weight (the file has backbone.fc_2.weight)", "--init", self.write("near", {**some, "backbone.fc_2.weight": lacking}))

    def test_other_names(self):
        all_ = tensors()
        path = self.write("w", {name.replace("backbone.", "enc.model."): value for name, value in all_.items()})
        self.refused("lacks 4 of the model's 6 parameters", "--init", path)
        got, said = self.start("--init", path, "--init-rename", "enc.model.*=backbone.*")
        self.same(got, all_)
        self.assertIn("6 of the model's 6 parameters were taken", said)
        # one after the other, several stars, the shortest first
        got, _ = self.start("--init", path, "--init-rename=enc.*=*", "--init-rename", "model.*.*=backbone.*.*")
        self.same(got, all_)
        # a prefix more, a prefix less (which goes by itself, too)
        body = self.write("body", {name[9:]: value for name, value in all_.items() if name.startswith("backbone")})
        got, _ = self.start("--init", body, "--init-rename", "*=backbone.*", "--init-missing", "keep")
        self.same(got, {n: v for n, v in all_.items() if n.startswith("backbone")})
        got, _ = self.start("--init", self.write("deep", {"a.b." + name: value for name, value in all_.items()}))
        self.same(got, all_)
        # a prefix that some have: as in GPT-2's files, whose head has none
        got, _ = self.start("--init", self.write("some", {("" if name.startswith("head") else "t.") + name: value for name, value in all_.items()}))
        self.same(got, all_)

    def test_prefixes(self):
        """What stands in front of names is that behind which most of them are, and never a name that the model has."""
        one, two = tensors("online."), tensors("target.")
        both = self.write("both.safetensors", {**one, **two})
        self.refused("has the model's parameters behind online. and behind target.: --init-rename \"PREFIX.*=*\" says which", "--init", both)
        got, _ = self.start("--init", both, "--init-rename", "target.*=*")
        self.same(got, {name.removeprefix("target."): value for name, value in two.items()})
        self.refused("behind online. and behind target.", "--init", both, "--init-missing", "keep")
        less = {"a.backbone.fc1.weight": one["online.backbone.fc1.weight"], **two}  # in front of target, and of one name only
        got, _ = self.start("--init", self.write("less.safetensors", less))
        self.same(got, {name.removeprefix("target."): value for name, value in two.items()})

        nameless = MODEL.replace("  logits", "  x = LayerNorm()(x)\n  logits").replace("Body(name=\"backbone\")(x)", "Linear(4, name=\"down\", bias=false)(x)")
        nameless = self.compile(nameless.replace("classes, name", "4, bias=false, name"), name="nameless.so")
        fresh, _ = self.start(artifact=nameless)
        self.assertEqual(sorted(fresh), ["bias", "down.weight", "head.weight", "weight"])
        values = {name: random.uniform(-1, 1, value.shape).astype("f4") for name, value in fresh.items()}
        lacks = {name: value for name, value in values.items() if name != "weight"}
        self.fails(1, "lacks 1 of the model's 4 parameters: weight", "ftrun", nameless, "--data", self.folder, "--steps", "0", "--init",
                          self.write("lacks.safetensors", lacks))
        got, _ = self.start("--init", self.write("lacks.safetensors", lacks), "--init-missing", "keep", artifact=nameless)
        self.same(got, {**lacks, "weight": fresh["weight"]})
        wrong = {f"m_{name}": value for name, value in values.items() if "." in name}  # two prefixes as good for `weight`, but for nothing else
        self.fails(1, "lacks 4 of the model's 4 parameters", "ftrun", nameless, "--data", self.folder, "--steps", "0", "--init",
                   self.write("wrong.safetensors", wrong))
        lacks["other.weight"] = values["weight"]  # not a prefix: three names stand as they are
        self.fails(1, "parameters: weight; not in the model: other.weight", "ftrun", nameless, "--data", self.folder, "--steps", "0", "--init",
                   self.write("lacks.safetensors", lacks))
        got, _ = self.start("--init", self.write("m.safetensors", {"m." + name: value for name, value in values.items()}), artifact=nameless)
        self.same(got, values)

    def test_several_files(self):
        one, two = tensors(), tensors()
        a = self.write("a", {n: v for n, v in one.items() if n.startswith("backbone")})
        b = self.write("b", {n: v for n, v in two.items() if n.startswith("head")} | {"backbone.fc1.bias": two["backbone.fc1.bias"]})
        got, said = self.start("--init", a, "--init", b)
        self.assertIn("6 of the model's 6 parameters were taken; of 1 tensor in several of them, the last", said)
        self.same(got, {n: two[n] if n.startswith("head") or n == "backbone.fc1.bias" else v for n, v in one.items()})
        got, _ = self.start("--init", b, "--init", a)
        self.same(got, {n: two[n] if n.startswith("head") else v for n, v in one.items()})

    def test_sharded(self):
        all_ = tensors()
        names = list(all_)
        self.write("model-00001-of-00002.safetensors", {n: all_[n] for n in names[:2]} | {"unmapped": numpy.zeros(1, "f4")})
        self.write("model-00002-of-00002.safetensors", {n: all_[n] for n in names[2:]})
        where = {n: f"model-0000{1 + (i >= 2)}-of-00002.safetensors" for i, n in enumerate(names)}
        index = self.index(where)
        for path in (index, self.folder):
            got, said = self.start("--init", path)
            self.same(got, all_)
            self.assertIn("6 of the model's 6 parameters were taken", said)
        self.assertEqual(support.run("ftrun", "eval", self.artifact, "--weights", index, "--data", self.folder, "--split", "train").returncode, 0)
        # from another folder, and as one file in a folder
        got, _ = self.start("--init", "model.safetensors.index.json", cwd=self.folder)
        self.same(got, all_)
        os.mkdir(self.path("whole"))
        self.write("whole/model.safetensors", all_)
        self.same(self.start("--init", self.path("whole"))[0], all_)

    def test_damaged_indices(self):
        all_ = tensors()
        self.write("s.safetensors", all_)
        fine = {n: "s.safetensors" for n in all_}
        for where, what in [
            ({**fine, "head.bias": "../s.safetensors"}, "is not the name of a .safetensors file beside the index"),
            ({**fine, "head.bias": "/etc/passwd"}, "is not the name of a .safetensors file beside the index"),
            ({**fine, "head.bias": "s.bin"}, "is not the name of a .safetensors file beside the index"),
            ({**fine, "head.bias": 3}, "where 'head.bias' lies is not a string"),
            ({**fine, "nowhere": "s.safetensors"}, "says that 'nowhere' lies in"),
            ({**fine, "head.bias": "t.safetensors"}, "t.safetensors"),
            ({}, 'has no "weight_map"'), ([], 'has no "weight_map"'), (None, 'has no "weight_map"')]:
            with self.subTest(what):
                self.refused(what, "--init", self.index(where, "i.json"))
        for text in ("", "{", "[]", '{"weight_map": {"a": "s.safetensors", "a": "s.safetensors"}}', "\0"):
            with open(self.path("i.json"), "w") as file:
                file.write(text)
            self.refused("i.json", "--init", self.path("i.json"))
        os.mkdir(self.path("empty"))
        self.refused("has neither model.safetensors nor model.safetensors.index.json", "--init", self.path("empty"))
        runs = self.path("runs")  # a folder of checkpoints: the best and the newest may be meant
        support.run("ftrun", self.artifact, "--data", self.folder, "--steps", "3", "--set", f"train.checkpoint.dir={runs}", "--set", "train.checkpoint.unit=step")
        self.refused(f"{runs} is a folder of checkpoints: name the one whose weights are meant, {runs}/step-00000003.safetensors, the newest", "--init", runs)
        os.link(os.path.join(runs, "step-00000002.safetensors"), os.path.join(runs, "best.safetensors"))
        self.fails(1, f"meant, {runs}/best.safetensors or {runs}/step-00000003.safetensors, the newest", "ftrun", "eval", self.artifact, "--data", self.folder, "--split", "train",
                   "--weights", runs)
        self.refused("none.json", "--init", self.path("none.json"))
        self.refused("expected OLD=NEW", "--init", self.path("s.safetensors"), "--init-rename", "head")
        self.refused("there are 1 and 2", "--init", self.path("s.safetensors"), "--init-rename", "head.*=*.*")
        self.refused("no tensor has such a name; there are backbone.fc1.weight", "--init", self.path("s.safetensors"), "--init-rename", "heat.*=*")
        self.refused("would both be called x", "--init", self.path("s.safetensors"), "--init-rename", "head.weight=x", "--init-rename", "head.bias=x")
        other = self.write("other", {"a": numpy.zeros(3, "f4")})
        self.refused("has none of the model's 6 parameters", "--init", other, "--init-missing", "keep")
        self.refused("expected keep or error", "--init", other, "--init-missing", "maybe", code=2)
        self.refused("--init-missing goes with --init", "--init-missing", "keep", code=2)

    def test_ranks(self):
        """Each rank keeps the same values, whole or in parts, as one rank without --init."""
        all_ = tensors()
        path = self.write("old", {n: v for n, v in all_.items() if n.startswith("backbone")})
        fresh, _ = self.start()
        for name, setting in (("zero.so", "zero=3"), ("pipe.so", "pipeline=2")):
            with self.subTest(setting):
                static = ["--set", "distributed." + setting] + (["--set", "distributed.data=2"] if "zero" in setting else ["--set", "train.accumulate=2", "--set", "train.batch=2"])
                got, said = self.start("--init", path, "--init-missing", "keep", "--ranks", "2", artifact=self.compile(MODEL, *static, name=name))
                self.same(got, {n: v if n.startswith("head") else all_[n] for n, v in fresh.items()})
                self.assertIn("4 of the model's 6 parameters were taken", said)
                self.assertIn("begin as without --init: head.weight, head.bias", said)


if __name__ == "__main__":
    support.main()
