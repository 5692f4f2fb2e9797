"""frozen(layer, "weights.safetensors"): a teacher within the step, and the losses of std/distil.ft, against PyTorch in every way of
training; resumed; without the teacher in what is written and predicted; bf16; what is refused."""
import os
import sys

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

NET = """
block Net(hidden: int)(x: [B, D]) {
  h = relu(BatchNorm(name="bn")(Linear(hidden, name="fc1")(x)))
  return Linear(4, name="fc2")(dropout(h, 0.4)), h
}
block Student()(x: [B, D]) { return Linear(4, name="fc2")(relu(Linear(8, name="fc1")(x))) }
"""
TEACHER = NET + """
model T(x: f32[B, 8], y: i32[B]) {
  logits, h = Net(32, name="net")(x)
  loss = mean(cross_entropy(logits, y))
  output logits
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 16; epochs = 3; seed = 2; optimizer = adam(lr=0.02); eval = none }
"""
STUDENT = NET + """
model S(x: f32[B, 8], y: i32[B]) {
  logits = Student(name="net")(x)
  hard = mean(cross_entropy(logits, y))
  loss = hard
  if training {
    t, h = frozen(Net(32, name="teacher"), "t.safetensors"%s)(x)
    loss = 0.3 * hard + 0.7 * mean(distill_kl(logits, t, temperature=3))
  }
  output logits
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); shuffle = false }
train { batch = %d; epochs = 1; seed = 5; optimizer = adamw(lr=0.02, weight_decay=0.1); eval = none; %s }
"""
# more of the recipe, flags of ftc, ranks
WAYS = {
    "plain": ("", [], 1),
    "parts of a batch": ("accumulate = 2", [], 1),
    "no fusion": ("", ["--disable=fuse"], 1),
    "recompute": ("recompute = block", [], 1),
    "zero 3": ("accumulate = 2", ["data=2", "zero=3"], 2),
    "tensor": ("", ["tensor=2"], 2),
    "pipeline": ("accumulate = 2", ["pipeline=2"], 2),
}
BATCH = 16
random = numpy.random.RandomState(3)


def linear(weights, name, h):
    return F.linear(h, weights[name + ".weight"], weights[name + ".bias"])


def teach(weights, x):
    """The teacher in evaluation: running statistics, no dropout."""
    h = linear(weights, "net.fc1", x)
    h = F.batch_norm(h, weights["net.bn.running_mean"], weights["net.bn.running_var"], weights["net.bn.weight"], weights["net.bn.bias"])
    return linear(weights, "net.fc2", torch.relu(h))


def learn(weights, x):
    return linear(weights, "net.fc2", torch.relu(linear(weights, "net.fc1", x)))


def soft_targets(s, t, temperature):
    """Hinton et al. (2015), by PyTorch's own divergence."""
    return temperature**2 * F.kl_div(F.log_softmax(s / temperature, -1), F.softmax(t.detach() / temperature, -1), reduction="none").sum(-1)


def double(file):
    return {k: torch.tensor(v).double() for k, v in support.read_safetensors(file).items()}


class Distil(support.Case):
    def setUp(self):
        super().setUp()
        x = random.randn(128, 8).astype("f4")
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), ((x[:, 0] > 0) + 2 * (x[:, 1] * x[:, 2] > 0)).astype("i4"))
        self.train(self.compile(TEACHER), "--save", self.path("t.safetensors"))

    def train(self, artifact, *flags):
        return support.run("ftrun", artifact, "--data", self.folder, *flags).stdout

    def reference(self, start):
        """What a training from these weights comes to."""
        teacher = double(self.path("t.safetensors"))
        weights = {k: v.requires_grad_() for k, v in start.items()}
        optimizer = torch.optim.AdamW(weights.values(), lr=0.02, weight_decay=0.1)
        x, y = torch.tensor(numpy.load(self.path("x.npy"))).double(), torch.tensor(numpy.load(self.path("y.npy"))).long()
        for i in range(0, len(x), BATCH):
            a, b = x[i : i + BATCH], y[i : i + BATCH]
            s = learn(weights, a)
            loss = 0.3 * F.cross_entropy(s, b) + 0.7 * soft_targets(s, teach(teacher, a), 3).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return weights

    def test_every_way(self):
        first = None
        for what, (more, static, ranks) in WAYS.items():
            with self.subTest(what):
                parts = (2 if "accumulate" in more else 1) * (2 if "data=2" in static else 1)
                flags = [word for s in static for word in (["--set", "distributed." + s] if "=" in s and s[0] != "-" else [s])]
                on = ["--ranks", ranks] if ranks > 1 else []
                artifact = self.compile(STUDENT % ("", BATCH // parts, more), *flags)
                folder = self.path("runs", what.replace(" ", "_"))
                every = ["--set", f"train.checkpoint.dir={folder}", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=3"]
                said = self.train(artifact, "--save", self.path("end"), *every, *on)
                self.assertIn("frozen layers: 8 tensors of " + self.path("t.safetensors"), said)
                if not first:
                    self.train(artifact, "--steps", 0, "--save", self.path("start"))
                    first = self.reference(double(self.path("start")))
                end = support.read_safetensors(self.path("end"))
                self.assertEqual(sorted(end), sorted(first))
                for name, value in end.items():
                    numpy.testing.assert_allclose(value, first[name].detach().numpy(), atol=3e-5, err_msg=f"{what}: {name}")
                middle = os.path.join(folder, "step-00000003.safetensors")
                self.assertFalse([name for name in support.read_safetensors(middle) if "teacher" in name])
                self.train(artifact, "--resume", middle, "--save", self.path("again"), *on)
                for name, value in end.items():
                    self.assertTrue(numpy.array_equal(value, support.read_safetensors(self.path("again"))[name]), f"{what}, resumed: {name}")

    def test_the_student_needs_no_teacher(self):
        """Evaluations and predictions neither read its file nor have memory for it; a training says what is missing."""
        artifact = self.compile(STUDENT % ("", BATCH, ""))
        self.train(artifact, "--save", self.path("end"))
        os.rename(self.path("t.safetensors"), self.path("gone"))
        self.assertIn("valid: loss", support.run("ftrun", "eval", artifact, "--weights", self.path("end"), "--data", self.folder).stdout)
        out = self.path("logits.npy")
        support.run("ftrun", "predict", artifact, "--weights", self.path("end"), "--data", self.folder, "--input", f"x={self.path('x.npy')}", "--output", f"logits={out}")
        expected = learn(double(self.path("end")), torch.tensor(numpy.load(self.path("x.npy"))).double())
        numpy.testing.assert_allclose(numpy.load(out), expected.numpy(), atol=1e-4)
        support.run("ftrun", "bench", artifact, "--data", self.folder, "--steps", 3)
        self.fails(1, "t.safetensors not found", "ftrun", artifact, "--data", self.folder)

    def test_other_files(self):
        artifact = self.compile(STUDENT % ("", BATCH, ""))
        folder = self.path("runs")
        self.train(artifact, "--steps", 2, "--set", f"train.checkpoint.dir={folder}")
        good = support.read_safetensors(self.path("t.safetensors"))

        def refused(sentence, change, *flags):
            tensors = dict(good)
            change(tensors)
            support.write_safetensors(self.path("t.safetensors"), tensors)
            self.fails(1, sentence, "ftrun", artifact, "--data", self.folder, *flags)

        refused("was trained with other weights of the frozen layers than there are now in t.safetensors", lambda t: t.update({"net.fc1.bias": t["net.fc1.bias"] + 1}), "--resume", folder)
        refused("lacks bn.running_var, which the frozen layer of teacher.bn.running_var needs", lambda t: t.pop("net.bn.running_var"))
        refused("has what its frozen layer needs behind net. and behind other.", lambda t: t.update({k.replace("net.", "other."): v for k, v in good.items()}))
        refused("net.fc2.bias is f32[5], but the frozen layer's teacher.fc2.bias is f32[4]", lambda t: t.update({"net.fc2.bias": numpy.zeros(5, "f4")}))
        # under the layer's own names, in another type, they are as good
        support.write_safetensors(self.path("t.safetensors"), {k[len("net.") :]: v.astype("f8") for k, v in good.items()})
        self.train(artifact)

    def test_bf16(self):
        """Kept in bf16 the teacher takes half of the memory; what it says is rounded where its weights are."""
        rows = {}
        for dtype in ("", ", dtype=bf16"):
            artifact = self.compile(STUDENT % (dtype, BATCH, ""))
            self.train(artifact, "--save", self.path("end" + dtype[-4:]))
            rows[dtype] = int(support.run("ftc", self.path("model.ft"), "--memory").stdout.split("weights of frozen layers")[1].split()[0])
        self.assertEqual(rows, {"": 4 * (32 * 8 + 5 * 32 + 4 * 32 + 16), ", dtype=bf16": 2 * (32 * 8 + 5 * 32 + 4 * 32 + 32)})
        teacher = double(self.path("t.safetensors"))
        for name, value in teacher.items():
            teacher[name] = value.float().bfloat16().double()
        support.write_safetensors(self.path("t.safetensors"), {k: v.numpy() for k, v in teacher.items()})
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        expected = self.reference(double(self.path("start")))
        for name, value in support.read_safetensors(self.path("endbf16")).items():
            numpy.testing.assert_allclose(value, expected[name].detach().numpy(), atol=3e-5, err_msg=name)

    def test_memory(self):
        """The teacher is forward only: nothing of it is kept for backward."""
        kept = []
        for file in (STUDENT % ("", 256, ""), STUDENT.replace("loss = 0.3", "loss = hard // ") % ("", 256, "")):
            self.compile(file)
            said = support.run("ftc", self.path("model.ft"), "--memory").stdout
            kept.append(int(said.split("activations kept for backward")[1].split()[0]))
        self.assertLessEqual(kept[0], kept[1] + 256 * 4 * 4)  # logits, not the 32 features

    def test_a_gradient_flows_through(self):
        """To what a frozen layer reads, as in a loss of features of a generated picture; its own values stay."""
        artifact = self.compile(NET + """
model S(x: f32[B, 8], y: i32[B]) {
  judge = frozen(Net(32, name="judge"), "t.safetensors")
  made = Linear(8, name="maker")(x)
  a, seen = judge(made)
  b, wanted = judge(x)
  loss = mean(distill_features(seen, wanted))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 16; optimizer = sgd(lr=0.5); eval = none }
""")
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        self.train(artifact, "--steps", 1, "--save", self.path("end"))
        start, t = double(self.path("start")), double(self.path("t.safetensors"))
        x = torch.tensor(numpy.load(self.path("x.npy"))[:16]).double()
        feature = lambda x: torch.relu(F.batch_norm(linear(t, "net.fc1", x), t["net.bn.running_mean"], t["net.bn.running_var"], t["net.bn.weight"], t["net.bn.bias"]))
        weights = {k: v.requires_grad_() for k, v in start.items()}
        F.mse_loss(feature(linear(weights, "maker", x)), feature(x)).backward()
        end = support.read_safetensors(self.path("end"))
        self.assertEqual(sorted(end), ["maker.bias", "maker.weight"])
        for name, value in end.items():
            numpy.testing.assert_allclose(value, (weights[name] - 0.5 * weights[name].grad).detach().numpy(), atol=1e-5, err_msg=name)

    def test_features_behind_a_projection(self):
        """DistillFeatures, of rows and of feature maps, and attention maps: one step of gradient descent."""
        artifact = self.compile("""
model S(x: f32[B, 8], y: i32[B]) {
  rows = DistillFeatures(name="rows")(x[:, 0:3], x[:, 3:8])
  image = reshape(x, [B, 2, 2, 2])
  maps = DistillFeatures(name="maps")(image, concat([image, image ** 2, image[:, 0:1] + 1], axis=1))
  loss = mean(rows) + mean(maps) + 3 * mean(distill_attention(Conv2d(3, 1, bias=false, name="own")(image), image))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 16; optimizer = sgd(lr=0.5); eval = none }
""")
        self.train(artifact, "--steps", 0, "--save", self.path("start"))
        self.train(artifact, "--steps", 1, "--save", self.path("end"))
        w = {k: v.requires_grad_() for k, v in double(self.path("start")).items()}
        x = torch.tensor(numpy.load(self.path("x.npy"))[:16]).double()
        image = x.reshape(-1, 2, 2, 2)
        looks = lambda x: F.normalize(x.square().mean(1).flatten(1))  # the paper's, as its authors' code has it
        loss = F.mse_loss(linear(w, "rows.projection", x[:, :3]), x[:, 3:])
        loss = loss + F.mse_loss(F.conv2d(image, w["maps.projection.weight"], w["maps.projection.bias"]), torch.cat([image, image**2, image[:, :1] + 1], 1))
        loss = loss + 3 * (looks(F.conv2d(image, w["own.weight"])) - looks(image)).square().mean()
        loss.backward()
        for name, value in support.read_safetensors(self.path("end")).items():
            numpy.testing.assert_allclose(value, (w[name] - 0.5 * w[name].grad).detach().numpy(), atol=1e-5, err_msg=name)

    def test_a_student_is_its_own_teacher(self):
        """average(student) as the teacher: the gradient is that of the soft targets alone; also where it is taken at weights that are moved, and the average is not."""
        text = NET + """
model S(x: f32[B, 8], y: i32[B]) {
  net = Student(name="net")
  loss = mean(cross_entropy(net(x), y)) + 0.5 * mean(distill_kl(net(x), average(net, decay=0.5)(x), 2))
}
data D { train = npy("x.npy", "y.npy"); shuffle = false }
train { batch = 16; optimizer = sgd(lr=0.2); eval = none; %s }
"""
        for recipe, rho in (("", 0), ("sharpness = sam(rho=0.5)", 0.5), ("sharpness = sam(rho=0.5); recompute = block", 0.5), ("sharpness = sam(rho=0.5, every=2)", 0.5)):
            with self.subTest(recipe):
                artifact = self.compile(text % recipe)
                self.train(artifact, "--steps", 0, "--save", self.path("start"))
                self.train(artifact, "--steps", 3, "--save", self.path("end"))
                start = {k: v for k, v in double(self.path("start")).items() if "average" not in k}
                expected = self.own_teacher(start, rho, 2 if "every" in recipe else 1)
                end = support.read_safetensors(self.path("end"))
                for name, value in expected.items():
                    numpy.testing.assert_allclose(end[name], value.detach().numpy(), atol=1e-5, err_msg=name)

    def own_teacher(self, w, rho, every):
        """Weights and averages after 3 steps."""
        x, y = torch.tensor(numpy.load(self.path("x.npy"))).double(), torch.tensor(numpy.load(self.path("y.npy"))).long()
        mean = dict(w)
        for step in range(3):
            rows = slice(16 * step, 16 * step + 16)
            mean = {k: 0.5 * v + 0.5 * w[k] for k, v in mean.items()}

            def gradients(v):
                v = {k: value.detach().requires_grad_() for k, value in v.items()}
                s = learn(v, x[rows])
                loss = F.cross_entropy(s, y[rows]) + 0.5 * soft_targets(s, learn(mean, x[rows]), 2).mean()
                return dict(zip(v, torch.autograd.grad(loss, list(v.values()))))

            g = gradients(w)
            if rho and step % every == 0:
                norm = torch.sqrt(sum(value.square().sum() for value in g.values()))
                g = gradients({k: v + rho * g[k] / norm for k, v in w.items()})
            w = {k: v - 0.2 * g[k] for k, v in w.items()}
        return {**w, **{k + ".average": v for k, v in mean.items()}}

    def test_a_teacher_of_whole_numbers(self):
        """train.quantize names layers of the teacher, which has its scales and ranges from the file that `ftrun quantize` wrote; patterns of others do not."""
        with open(self.path("t.ft"), "w") as file:
            file.write(TEACHER)
        support.run("ftrun", "quantize", self.path("t.ft"), "--data", self.folder, "--weights", self.path("t.safetensors"), "-o", self.path("q.ft"), "--layers", "*=w4a8", "--split", "train")
        said = []
        for name, weights, source in (("q", "q.safetensors", "q.ft"), ("t", "t.safetensors", "t.ft")):
            support.run("ftrun", "predict", self.path(source), "--data", self.folder, "--weights", self.path(weights), "--input", f"x={self.path('x.npy')}", "--output", f"logits={self.path('said.npy')}")
            said.append(numpy.load(self.path("said.npy")))
        self.assertGreater(abs(said[0] - said[1]).max(), 0.05)
        text = (STUDENT % ("", BATCH, "%s")).replace("if training {", "if true {").replace("output logits", "output logits\n  output t").replace("t.safetensors", "%s.safetensors")
        for words, file, expected in (("teacher.fc1=w4a8 teacher.fc2=w4a8u", "q", said[0]), ("", "t", said[1]), ("*=w4a8", "t", said[1])):
            with self.subTest(words):
                artifact = self.compile(text % (file, f'quantize = "{words}"' if words else ""))
                self.train(artifact, "--steps", 0, "--save", self.path("start"))
                support.run("ftrun", "predict", artifact, "--data", self.folder, "--weights", self.path("start"), "--input", f"x={self.path('x.npy')}", "--output", f"t={self.path('here.npy')}")
                numpy.testing.assert_allclose(numpy.load(self.path("here.npy")), expected, atol=1e-5)
        artifact = self.compile(text % ("t", 'quantize = "teacher.fc1=w4a8"'))
        self.fails(1, "lacks fc1.weight_scale, which the frozen layer", "ftrun", artifact, "--data", self.folder)

    def test_written_before(self):
        """What the teacher says as one more input, a row for each sample: shuffled, it is the training with the teacher in the step."""
        predictor = self.compile(TEACHER, name="teacher.so")
        support.run("ftrun", "predict", predictor, "--weights", self.path("t.safetensors"), "--data", self.folder, "--input", f"x={self.path('x.npy')}", "--output", f"logits={self.path('said.npy')}")
        text = (STUDENT % ("", BATCH, "")).replace("shuffle = false", "shuffle = true").replace("epochs = 1", "epochs = 2")
        said = text.replace("y: i32[B])", "y: i32[B], said: f32[B, 4])", 1).replace('"y.npy")', '"y.npy", "said.npy")').replace("distill_kl(logits, t,", "distill_kl(logits, said,")
        said = "\n".join(line for line in said.splitlines() if "frozen(" not in line)
        said = said.replace("if training {", "if true {")
        ends = []
        for name, file in (("step.so", text), ("said.so", said)):
            self.train(self.compile(file, name=name), "--save", self.path("end"))
            ends.append(support.read_safetensors(self.path("end")))
        for name, value in ends[0].items():
            numpy.testing.assert_allclose(ends[1][name], value, atol=1e-5, err_msg=name)

    def test_in_evaluation_too(self):
        """Where the loss of evaluations has the teacher, they read its file; the simulator computes the same."""
        text = (STUDENT % ("", BATCH, "")).replace("if training {", "if true {")
        logs = []
        for target, flags in (("model.so", []), ("model.ptx", ["--device", "sim"])):
            artifact = self.path(target)
            self.compile(text)
            support.run("ftc", self.path("model.ft"), "-o", artifact)
            self.train(artifact, "--steps", 2, "--save", self.path("end"), *flags)
            logs.append(support.run("ftrun", "eval", artifact, "--weights", self.path("end"), "--data", self.folder, *flags).stdout.splitlines()[-1].split()[2])
        end, teacher = double(self.path("end")), double(self.path("t.safetensors"))
        x, y = torch.tensor(numpy.load(self.path("x.npy"))).double(), torch.tensor(numpy.load(self.path("y.npy"))).long()
        s = learn(end, x)
        expected = float(0.3 * F.cross_entropy(s, y) + 0.7 * soft_targets(s, teach(teacher, x), 3).mean())
        for value in logs:
            self.assertAlmostEqual(float(value), expected, delta=2e-4)

    def test_refused(self):
        model = 'block L()(x: [B, D]) { return Linear(8, name="a")(x) }\nmodel M(x: f32[B, 8]) {\n  l = L(name="l")\n  loss = mean(Linear(8, name="o")(x)) + mean(%s)\n}\ntrain { batch = 4; optimizer = sgd(lr=0.1) }\n'
        for expression, sentence in (
            ('frozen(x, "t")', "frozen() takes a layer and gives one with the weights of a file, not a tensor"),
            ("frozen(l, 3)(x)", "frozen() needs the name of a file of weights, not 3"),
            ('frozen(l, "t", dtype=f16)(x)', "the weights of a frozen layer are kept in f32 or bf16, not f16"),
            ('frozen(frozen(l, "t"), "t")(x)', "this layer has the weights of a file in place of its parameters already"),
            ('average(frozen(l, "t"), decay=0.9)(x)', "this layer has the weights of a file in place of its parameters already"),
            ('frozen(average(l, decay=0.9), "t")(x)', "this layer has averages in place of its parameters already"),
            ('frozen(l, "t")(x) + l(x)', "the layer of 'l.a.weight' is applied frozen, with the weights of \"t\", and otherwise: make one more layer for frozen()"),
            ('frozen(l, "t")(x) + frozen(l, "u")(x)', "the layer of 'l.a.weight' is applied frozen"),
            ("distill_kl(x, x[:, 0:4])", "distill_kl: the student's logits [4, 8] must have the shape of the teacher's [4, 4]"),
            ("distill_kl(x, x, 0)", "distill_kl: the temperature is above 0, not 0"),
            ("distill_features(x, x[:, 0:4])", "distill_features: the student's features [4, 8] must have the shape of the teacher's [4, 4]; DistillFeatures() projects them"),
        ):
            with open(self.path("bad.ft"), "w") as file:
                file.write(model % expression)
            self.fails(1, sentence, "ftc", self.path("bad.ft"), "--emit=ir")


if __name__ == "__main__":
    support.main()
