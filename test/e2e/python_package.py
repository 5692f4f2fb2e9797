"""The Python package: what it trains has the bits of docs/embedding.md's program in C; arrays of NumPy and of PyTorch (by DLPack), by order and by name; what
does not fit is refused with a sentence; evaluation, checkpoints, generation, progress."""
import io
import os
import subprocess
import sys
import threading
import warnings

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import support

if support.IS_SANITIZED:
    print("a library with AddressSanitizer cannot be opened by this Python: skipped")
    print("1 passed, 0 failed")
    sys.exit(0)
os.environ["FT_LIBRARY"] = os.path.join(support.BUILD, "lib", "libft.so")
os.environ["FTC"] = os.path.join(support.BUILD, "bin", "ftc")
sys.path.insert(0, os.path.join(support.ROOT, "python"))
import ft

LINE = """hyper rows: int = 7
model Line(x: f32[B, I=3], y: f32[B, 1]) {
  p = Linear(1, name="w")(x)
  loss = mean((p - y) ** 2)
  metric off = mean(abs(p - y))
  output p
}
train { model = Line; batch = rows; optimizer = sgd(lr=0.01) }
"""
LABELS = """model M(x: u8[B, 4], y: i32[B]) { loss = mean(cross_entropy(Linear(3, name="out")(f32(x)), y)) }
train { model = M; batch = 2; optimizer = sgd(lr=0.01) }
"""

DROPPED = """model M(x: f32[B, 32], y: f32[B, 1]) {
  loss = mean((Linear(1, name="w")(dropout(x, 0.5)) - y) ** 2)
}
train { model = M; batch = 8; optimizer = sgd(lr=0.1) }
"""
NORMED = """hyper parts: int = 1
model M(x: f32[B, 4], y: i32[B]) {
  x = relu(BatchNorm(name="bn")(Linear(6, name="a")(x)))
  logits = Linear(3, name="b")(dropout(x, 0.25))
  loss = mean(cross_entropy(logits, y))
  output logits
}
train { model = M; batch = 5; optimizer = adam(lr=0.01); accumulate = parts }
"""

TYPES = """model M(x: f32[B, 4], mask: bool[B], w: bf16[B, 2]) {
  h = Linear(3, name="a")(x)
  loss = mean(where(unsqueeze(mask, -1), h, 0) ** 2) + mean(f32(w))
  output is_high = h > 0
  output which = argmax(h, axis=-1)
  output half = f16(h)
  output wide = bf16(h)
}
train { model = M; batch = 5; optimizer = sgd(lr=0.1) }
"""


class Package(support.Case):
    def artifact(self, text=LINE, name="line", **options):
        with open(self.path(name + ".ft"), "w") as file:
            file.write(text)
        return ft.compile(self.path(name + ".ft"), **options)

    def test_the_bits_of_the_program_in_c(self):
        with open(os.path.join(support.ROOT, "docs/embedding.md")) as file:
            source = file.read().split("```c\n")[1].split("```")[0]
        with open(self.path("program.c"), "w") as file:
            file.write(source)
        subprocess.run(["gcc", self.path("program.c"), "-I", support.ROOT, os.environ["FT_LIBRARY"], f"-Wl,-rpath,{support.BUILD}/lib", "-o", self.path("program")], check=True)
        artifact = self.artifact()
        subprocess.run([self.path("program"), artifact, self.path("c.safetensors")], check=True, capture_output=True)
        x = (numpy.arange(21) % 7).astype(numpy.float32) / numpy.float32(7) - numpy.float32(0.4)
        y = x[numpy.arange(7) * 21 // 7]
        with ft.Model(artifact, device="cpu", threads=2) as model:
            model.set("train.lr", 0.05)
            model.init(42)
            losses = model.fit([(x.reshape(7, 3), y.reshape(7, 1))] * 200, progress=False)
            self.assertEqual(model.steps, 200)
            model.save_weights(self.path("python.safetensors"))
        self.assertLess(losses[-1], losses[0])
        ours, theirs = (support.read_safetensors(self.path(name)) for name in ("python.safetensors", "c.safetensors"))
        for name in theirs:
            numpy.testing.assert_array_equal(ours[name], theirs[name])

    def test_the_page(self):
        with open(os.path.join(support.ROOT, "docs/python.md")) as file:
            program = file.read().split("```python\n")[1].split("```")[0]
        environment = {**os.environ, "PYTHONPATH": os.path.join(support.ROOT, "python")}
        done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("x: f32[32, 3], y: f32[32, 1] -> ", done.stdout)
        self.assertIn("step 320/320", done.stdout)
        numbers = [float(word) for word in done.stdout.split("\n")[-3].replace("[", " ").replace("]", " ").split()]
        numpy.testing.assert_allclose(numbers, [1, -2, 0.5, 0.25], atol=0.02)

    def test_arrays(self):
        import torch
        artifact = self.artifact()
        generator = numpy.random.default_rng(0)
        x, y = generator.normal(size=(7, 3)).astype("f4"), generator.normal(size=(7, 1)).astype("f4")
        with ft.Model(artifact) as model:
            self.assertEqual([str(spec) for spec in model.inputs], ["x: f32[7, 3]", "y: f32[7, 1]"])
            self.assertEqual([str(spec) for spec in model.parameters], ["w.weight: f32[1, 3]", "w.bias: f32[1]"])
            self.assertEqual(model.batch, 7)
            self.assertIn("ft.Model on cpu", repr(model))
            ways = [(x, y), (torch.tensor(x), torch.tensor(y)), (x.astype("f8"), y), (x.tolist(), y), (numpy.asfortranarray(x), y[::1]), (memoryview(x), y)]
            losses = []
            for way in ways:
                model.init(1)
                losses.append(model.train_step(*way))
            model.init(1)
            losses.append(model.train_step(y=y, x=x))
            model.init(1)
            losses.append(model.train_step({"x": x, "y": y}))
            self.assertEqual(len(set(losses)), 1, losses)
            w, b = model["w.weight"], model["w.bias"]
            found = model.predict(x=x)
            numpy.testing.assert_allclose(found["p"], x @ w.T + b, rtol=1e-5, atol=1e-6)
            numpy.testing.assert_allclose(model.evaluate([(x, y), {"x": x, "y": y}])["off"], numpy.abs(x @ w.T + b - y).mean(), rtol=1e-5)
            module = torch.nn.Linear(3, 1)
            model.load_state_dict({f"w.{name}": value for name, value in module.state_dict().items()})
            numpy.testing.assert_allclose(model.predict(x=x)["p"], module(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
            module.load_state_dict({name[2:]: torch.tensor(value) for name, value in model.state_dict().items()})
            model["w.bias"] = [0.5]
            self.assertEqual(model["w.bias"].tolist(), [0.5])

    def test_states(self):
        """A module of PyTorch with running statistics, there and back; states of a model that nobody initialised are what the program says."""
        import torch
        module = torch.nn.Sequential()
        for name, layer in (("a", torch.nn.Linear(4, 6)), ("bn", torch.nn.BatchNorm1d(6)), ("relu", torch.nn.ReLU()), ("b", torch.nn.Linear(6, 3))):
            module.add_module(name, layer)
        x = torch.randn(5, 4)
        with ft.Model(self.artifact(NORMED, "normed")) as model:
            self.assertEqual([str(spec) for spec in model.states], ["bn.running_mean: f32[6]", "bn.running_var: f32[6]"])
            model.load_state_dict({name: value for name, value in module.state_dict().items() if "running" not in name})
            numpy.testing.assert_allclose(model.predict(x=x)["logits"], module.eval()(x).detach(), rtol=1e-4, atol=1e-5)
            module.train()(x)
            model.load_state_dict(module.state_dict())
            numpy.testing.assert_array_equal(model["bn.running_mean"], module.bn.running_mean)
            numpy.testing.assert_allclose(model.predict(x=x)["logits"], module.eval()(x).detach(), rtol=1e-4, atol=1e-5)
            model.train_step(x, [0, 1, 2, 0, 1])
            module.load_state_dict({name: torch.tensor(value) for name, value in model.state_dict().items()})
            numpy.testing.assert_allclose(model.predict(x=x)["logits"], module.eval()(x).detach(), rtol=1e-4, atol=1e-5)
            model["bn.running_var"] = numpy.full(6, 4.0)
            self.assertEqual(model["bn.running_var"].tolist(), [4] * 6)
            self.refused("has ['c']", model.load_state_dict, {**model.state_dict(), "c": x})

    def test_resumed_amid_a_batch(self):
        """The parts of a batch that were done before it count no more."""
        generator = numpy.random.default_rng(0)
        batches = [(generator.normal(size=(5, 4)).astype("f4"), generator.integers(0, 3, 5)) for _ in range(9)]
        artifact = self.artifact(NORMED, "normed", hypers={"parts": 3})
        with ft.Model(artifact) as whole, ft.Model(artifact) as again:
            whole.init(1)
            again.init(1)
            expected = whole.fit(batches, progress=False)
            losses = again.fit(batches[:6], progress=False)
            again.save(self.path("c.safetensors"))
            for part in batches[:2]:
                again.train_step(*part)
            again.resume(self.path("c.safetensors"))
            self.assertEqual(losses + again.fit(batches[6:], progress=False), expected)
            for name, value in whole.state_dict().items():
                numpy.testing.assert_array_equal(again[name], value)

    def test_seeds(self):
        """init's seed is that of the masks, too, and a resume goes on with the file's."""
        artifact = self.artifact(DROPPED, "dropped")
        x, y = numpy.ones((8, 32), "f4"), numpy.zeros((8, 1), "f4")

        def drawn(seed):
            with ft.Model(artifact) as model:
                model.init(seed)
                model["w.weight"], model["w.bias"] = numpy.zeros((1, 32), "f4"), [1.0]
                model.train_step(x, y)
                return model["w.weight"].tolist()

        self.assertEqual(drawn(1), drawn(1))
        self.assertNotEqual(drawn(1), drawn(2))
        with ft.Model(artifact) as model, ft.Model(artifact) as again:
            model.init(3)
            model.set("train.seed", 9)
            model.train_step(x, y)
            model.save(self.path("s.safetensors"))
            again.resume(self.path("s.safetensors"))
            self.assertEqual([model.train_step(x, y) for _ in range(3)], [again.train_step(x, y) for _ in range(3)])

    def test_settings(self):
        """What nothing here reads is refused, and stays as it was; any setting is read as text; without a seed init takes the file's."""
        artifact = self.artifact(DROPPED.replace("batch = 8", "batch = 8; seed = 41; schedule = plateau()"), "dropped")
        x, y = numpy.ones((8, 32), "f4"), numpy.zeros((8, 1), "f4")
        with ft.Model(artifact) as model:
            for key, value in (("train.epochs", 3), ("train.steps", 9), ("train.eval.every", 2), ("train.checkpoint.dir", "c"), ("train.stop.patience", 3), ("train.max_time", 5),
                               ("train.log.every", 2), ("data.shuffle", False), ("distributed.timeout", 9), ("train.schedule.patience", 2)):
                before = model.get(key)
                self.refused(f"{key} is for ftrun, and changes nothing here", model.set, key, value)
                self.assertEqual(model.get(key), before)
            self.refused("ft_set_total says how long", model.set, "train.epochs", 3)
            for key in ("train.momentum", "train.ema", "train.beta1", "train.loss_scale.every", "train.quantize.after"):
                self.refused(f"{key} is read by no step: the model was compiled without", model.set, key, 0.5 if key != "train.loss_scale.every" else 5)
            model.set("train.momentum", 0)
            model.set("train.beta1", 0.9)  # as it is
            for key, value in (("train.weight_decay", 0.1), ("train.schedule.warmup", 3), ("train.schedule.gamma", 0.5), ("train.timeout", 5)):
                model.set(key, value)
                self.assertEqual(float(model.get(key)), value)
            self.assertEqual([model.get(key) for key in ("train.batch", "train.seed", "train.optimizer", "data.shuffle", "train.eps")], ["8", "41", "sgd", "true", "1e-08"])
            self.refused("did you mean train.lr?", model.get, "train.lt")
        starts = {}
        for seed in (None, 41, 0):
            with ft.Model(artifact) as model:
                model.init() if seed is None else model.init(seed)
                self.assertEqual(model.get("train.seed"), str(41 if seed is None else seed))
                starts[seed] = model["w.weight"].tolist(), model.train_step(x, y)
                if seed is None:
                    model.set("train.seed", 0)
                    model.init()
                    starts["set"] = model["w.weight"].tolist(), model.train_step(x, y)
        self.assertEqual(starts[None], starts[41])
        self.assertEqual(starts["set"], starts[0])
        self.assertNotEqual(starts[0], starts[41])

    def test_warnings(self):
        """What ftc warns of is seen, each by itself, with its place; where it warns of nothing there is none."""
        text = LINE.replace("  metric", "  unused = x * 2\n  also = x * 3\n  metric")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            self.artifact(text, "warned")
        self.assertEqual([w.category for w in seen], [ft.CompileWarning] * 2)
        for warning, name, line in zip(seen, ("unused", "also"), (5, 6)):
            self.assertIn(f"warned.ft:{line}:3: warning: variable '{name}' is never used", str(warning.message))
            self.assertIn("^", str(warning.message))
            self.assertEqual(os.path.basename(warning.filename), "python_package.py")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.artifact()
            with self.assertRaises(ft.CompileWarning):
                self.artifact(text, "warned")

    def test_several_models(self):
        """Models that train in turns, or each in a thread of its own, have the bits of each alone; messages are those of the thread; they close in any order."""
        normed, dropped = self.artifact(NORMED, "normed"), self.artifact(DROPPED, "dropped")
        generator = numpy.random.default_rng(0)
        data = {normed: (generator.normal(size=(5, 4)).astype("f4"), numpy.arange(5, dtype="i4") % 3), dropped: (generator.normal(size=(8, 32)).astype("f4"), generator.normal(size=(8, 1)).astype("f4"))}
        plan = [(normed, 1), (dropped, 2), (normed, 3), (dropped, 1)]

        def alone(artifact, seed, steps=12):
            with ft.Model(artifact, threads=2) as model:
                model.init(seed)
                losses = [model.train_step(*data[artifact]) for _ in range(steps)]
                return losses, {n: v.tolist() for n, v in model.state_dict().items()}, {n: v.tolist() for n, v in model.predict(*data[artifact]).items()}

        expected = [alone(*row) for row in plan]
        models = [ft.Model(artifact, threads=2) for artifact, _ in plan]
        for model, (_, seed) in zip(models, plan):
            model.init(seed)
        losses = [[] for _ in plan]
        for step in range(12):
            for i, (artifact, _) in enumerate(plan):
                losses[i].append(models[i].train_step(*data[artifact]))
        ends = [({n: v.tolist() for n, v in model.state_dict().items()}, {n: v.tolist() for n, v in model.predict(*data[row[0]]).items()}) for model, row in zip(models, plan)]
        self.assertEqual([(a, *b) for a, b in zip(losses, ends)], expected)
        for i in (2, 0, 3, 1):
            models[i].close()
        found, said = [None] * len(plan), [None] * len(plan)

        def work(i):
            found[i] = alone(*plan[i])
            with ft.Model(plan[i][0]) as model:
                for _ in range(50):
                    try:
                        model.set(f"nothing.{i}", 1)
                    except ft.FtError as error:
                        said[i] = {str(error)} | (said[i] or set())

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(plan))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, expected)
        for i, messages in enumerate(said):
            self.assertEqual(len(messages), 1)
            self.assertIn(f"nothing.{i}", *messages)

    def test_ranges_of_a_checkpoint(self):
        """A range that is no finite number is refused by a resume, too; the model stays as it was."""
        artifact = self.artifact(LINE.replace("Linear", "QuantLinear"), "rounded")
        with ft.Model(artifact) as model, ft.Model(artifact) as again:
            model.init(3)
            again.init(4)
            before = again["w.weight"]
            model.save(self.path("good.safetensors"))
            model["w.input.max_abs"] = [numpy.inf]
            model.save(self.path("bad.safetensors"))
            self.refused("bad.safetensors: w.input.max_abs holds inf, which is no range", again.resume, self.path("bad.safetensors"))
            numpy.testing.assert_array_equal(again["w.weight"], before)
            again.resume(self.path("good.safetensors"))
            numpy.testing.assert_array_equal(again["w.weight"], model["w.weight"])

    def test_outputs_that_are_gone(self):
        """What a training's step or none has left in the memory of an output is no output."""
        library, check = ft._library.library, ft._library.check
        with ft.Model(self.artifact(NORMED, "normed")) as model:
            model.init(1)
            room = numpy.zeros((5, 3), "f4")
            read = lambda: check(library.ft_read_output(model._open, b"logits", room.ctypes.data, room.nbytes))
            self.refused("read it after ft_predict", read)
            model.predict(numpy.ones((5, 4), "f4"))
            read()
            model.train_step(numpy.ones((5, 4), "f4"), [0, 1, 2, 0, 1])
            self.refused("read it after ft_predict", read)

    def test_types(self):
        """bool and bf16, which NumPy or DLPack lack, in and out; f16 and whole numbers out."""
        import torch
        generator = numpy.random.default_rng(0)
        x, mask = generator.normal(size=(5, 4)).astype("f4"), numpy.array([1, 0, 1, 1, 0], bool)
        wide = torch.tensor(generator.normal(size=(5, 2))).to(torch.bfloat16)
        bits = wide.view(torch.int16).numpy().view("u2")
        with ft.Model(self.artifact(TYPES, "types")) as model:
            losses = []
            for way in ((x, mask, bits), (torch.tensor(x).T.contiguous().T, torch.tensor(mask), wide), (x, list(map(bool, mask)), bits[:, ::-1][:, ::-1])):
                model.init(3)
                losses.append(model.train_step(*way))
            self.assertEqual(len(set(losses)), 1, losses)
            found = model.predict(x, mask, wide)
            h = x @ model["a.weight"].T + model["a.bias"]
            numpy.testing.assert_array_equal(found["is_high"], h > 0)
            numpy.testing.assert_array_equal(found["which"], h.argmax(-1))
            numpy.testing.assert_allclose(found["half"], h, rtol=1e-3, atol=1e-3)
            back = (numpy.ascontiguousarray(found["wide"]).view("u2").astype("u4") << 16).view("f4")
            numpy.testing.assert_allclose(back, h, rtol=1 / 128)
            self.refused("was given uint8", model.train_step, x, mask.astype("u1"), bits)
            self.refused("detach it", model.train_step, torch.tensor(x, requires_grad=True), mask, bits)

    def refused(self, needle, call, *arguments, kind=ft.FtError, **named):
        with self.assertRaises(kind) as caught:
            call(*arguments, **named)
        self.assertIn(needle, str(caught.exception))

    def test_what_does_not_fit(self):
        import torch
        artifact = self.artifact()
        x, y = numpy.zeros((7, 3), "f4"), numpy.zeros((7, 1), "f4")
        model = ft.Model(artifact)
        model.init()
        self.refused("was given an array of shape [8, 3]; the batch is compiled in", model.train_step, numpy.zeros((8, 3), "f4"), y)
        self.refused("was given int64: convert it", model.train_step, x.astype("i8"), y)
        self.refused("lacks y: f32[7, 1]", model.train_step, x)
        self.refused("there is no input z", model.train_step, x, z=y)
        self.refused("given twice", model.train_step, x, y, x=x)
        self.refused("3 arrays for 2 inputs", model.train_step, x, y, y)
        self.refused("detach it", model.train_step, torch.zeros(7, 3, requires_grad=True), y)
        self.refused("did you mean train.lr?", model.set, "train.le", 1)
        self.refused("compiled in", model.set, "train.batch", 1)
        self.refused("no/where", model.save_weights, self.path("no/where/w.safetensors"), kind=(ft.FtError, ft.FtFault))
        self.refused("lacks ['w.bias']", model.load_state_dict, {"w.weight": x[:1]})
        self.refused("no parameter", model.__getitem__, "w.w", kind=KeyError)
        self.refused("seed -1", model.init, -1)
        self.refused("seed 9007199254740993", model.init, 2**53 + 1)
        self.refused("is more than 2^53", lambda: ft._library.check(ft._library.library.ft_init(model._open, 2**64 - 1)))
        self.refused("beyond what f32 holds", model.train_step, x + numpy.array([0, 0, 1e300]), y)
        self.refused("beyond what f32 holds", model.__setitem__, "w.bias", [1e39])
        model["w.bias"] = [numpy.inf]
        model.set("train.lr", numpy.float64(0.01))
        self.refused("no batch", model.evaluate, [])
        model.close()
        model.close()
        self.refused("the model is closed", model.train_step, x, y)
        self.assertEqual(repr(model), "<ft.Model, closed>")
        self.refused("No such file", ft.Model, self.path("none.so"))
        self.refused("toaster", ft.Model, artifact, device="toaster")
        self.refused("is opened for", ft.Model, artifact, train=False, predict=False)
        self.refused("bad.ft:1", self.artifact, "model M(", "bad", kind=ft.CompileError)
        with ft.Model(self.artifact(LABELS, "labels")) as labels:
            labels.init()
            labels.train_step(numpy.ones((2, 4), "i8"), [1, 2])
            self.refused("beyond what u8 holds: 300 to 300", labels.train_step, numpy.full((2, 4), 300), [1, 2])
            self.refused("3", labels.train_step, numpy.ones((2, 4), "u1"), [1, 3])

    def test_going_on(self):
        artifact = self.artifact(hypers={"rows": 4}, sets={"train.optimizer": "adam"}, output=self.path("four.so"))
        generator = numpy.random.default_rng(0)
        batches = [(generator.normal(size=(4, 3)), generator.normal(size=(4, 1))) for _ in range(12)]
        with ft.Model(artifact) as whole, ft.Model(artifact) as parts:
            whole.init(3)
            parts.init(3)
            seen = []
            expected = whole.fit(batches, progress=False, callbacks=[lambda model, step, loss: seen.append((model is whole, step))])
            self.assertEqual(seen, [(True, step) for step in range(1, 13)])
            losses = parts.fit(iter(batches), steps=5, progress=False)
            parts.save(self.path("c.safetensors"))
            parts.fit(batches[:3], progress=False)
            parts.resume(self.path("c.safetensors"))
            self.assertEqual(parts.steps, 5)
            losses += parts.fit(batches[5:], progress=False, callbacks=[lambda model, step, loss: step < 11])
            self.assertEqual(losses, expected[:11])

    def test_parts_of_a_batch(self):
        """Of several parts the losses are those of steps, and equal to those of the whole batch."""
        generator = numpy.random.default_rng(0)
        x, y = generator.normal(size=(12, 8, 3)), generator.normal(size=(12, 8, 1))
        with ft.Model(self.artifact(hypers={"rows": 8}, output=self.path("whole.so"))) as whole:
            whole.init(1)
            expected = whole.fit(zip(x, y), progress=False)
        with ft.Model(self.artifact(hypers={"rows": 4}, sets={"train.accumulate": 2}, output=self.path("parts.so"))) as parts:
            parts.init(1)
            seen = []
            losses = parts.fit(zip(x.reshape(24, 4, 3), y.reshape(24, 4, 1)), steps=9, progress=False, callbacks=[lambda model, step, loss: seen.append(step)])
        self.assertEqual(seen, list(range(1, 10)))
        numpy.testing.assert_allclose(losses, expected[:9], rtol=1e-5)

    def test_progress(self):
        out = io.StringIO()
        show = ft.Progress(3, out)
        show.begun -= 1
        show.is_live = True
        for step in (1, 2, 3):
            show.shown = 0
            show(None, step, 0.5, end=step == 3)
        self.assertRegex(out.getvalue(), r"\r\x1b\[K\[#{6}\.{14}\] step 1/3  loss 0.5  \d\.\d steps/s  eta 0:0\d\r.*step 3/3.*\n$")

    def test_generation(self):
        artifact = ft.compile(os.path.join(support.EXAMPLES, "gpt_bytes.ft"), self.path("gpt.so"), hypers={"L": 1, "D": 16, "T": 16, "heads": 2})
        with ft.Model(artifact, train=False, predict=False, generate=True) as model:
            model.init(1)
            self.assertEqual(model.vocabulary, 256)
            text = list(model.generate(b"abc", 10, temperature=0))
            self.assertEqual(text, list(model.generate(list(b"abc"), 10, temperature=0)))
            self.assertEqual(len(text), 10)
            list(model.generate(b"abc", 0))
            self.assertEqual(int(model.scores().argmax()), text[0])
            self.refused("256 is no token", list, model.generate([256], 1))
            self.refused("another text was begun", list, zip(model.generate(b"abc", 9), model.generate(b"xyz", 9)))


if __name__ == "__main__":
    support.main()
