"""Several ranks of one training: what they are refused for, which samples each gets, who writes and who speaks, what they
compare before they begin, signals, and going on with another number of them."""
import glob
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FTRUN = os.path.join(support.BUILD, "bin", "ftrun")
MPIRUN = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
SOAK = bool(os.environ.get("FT_SOAK"))
HAS_MPI = bool(shutil.which("mpirun")) and bool(glob.glob(os.path.join(support.BUILD, "**", "libft-mpi.so"), recursive=True))
MLP = """
model M(x: f32[B, 8], y: i32[B]) {
  logits = Linear(4, name="head")(relu(Linear(16, name="fc1")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 4; seed = 5; optimizer = adam(lr=0.01); epochs = 2; checkpoint { every = 5 steps }; log { every = 1 steps } }
"""
CNN = """
model C(x: f32[B, 1, 6, 6], y: i32[B]) {
  logits = Linear(4, name="head")(flatten(relu(Conv2d(3, 3, name="conv")(x)), from=1))
  loss = mean(cross_entropy(logits, y))
}
data D { train = npy("i.npy", "y.npy") }
train { batch = 4; optimizer = sgd(lr=0.01) }
"""
SAMPLES = 103


def by_turns(shapes, turn):
    """All; under sanitizers, which make ranks slow, a third of them, and another third in the next turn; of two a half."""
    each = min(3, len(shapes))
    return shapes[turn % each::each] if support.IS_SANITIZED else shapes


class Ranks(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.default_rng(0)
        numpy.save(self.path("x.npy"), random.standard_normal((SAMPLES, 8)).astype("f4"))
        numpy.save(self.path("i.npy"), random.standard_normal((SAMPLES, 1, 6, 6)).astype("f4"))
        numpy.save(self.path("y.npy"), random.integers(0, 4, SAMPLES).astype("i4"))

    def start(self, *arguments, ranks=None, env=None, check=True, exit_code=0):
        """ftrun, as so many ranks by mpirun, or with its own --ranks."""
        command = [FTRUN, *map(str, arguments)]
        if ranks:
            command = MPIRUN + ["-n", str(ranks)] + command
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder, env=dict(os.environ, **(env or {})))
        said = done.stdout + done.stderr
        for trace in ("Sanitizer", "Segmentation", "core dumped", "Assertion"):
            self.assertNotIn(trace, said)
        if check:
            self.assertEqual(done.returncode, exit_code, said[-3000:])
        return done

    def refused(self, sentence, *arguments, env):
        done = self.start(*arguments, env=env, exit_code=1)
        self.assertEqual([line for line in done.stderr.splitlines() if line], ["error: " + sentence])

    def one_of(self, ranks, rank=0):
        """What mpirun sets: with the job's name, by which ranks of jobs that run at the same time are told apart."""
        return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks), "PMIX_NAMESPACE": f"{os.getpid()}{self.id()[-12:]}"}


class Alone(Ranks):
    """What needs no MPI."""

    def test_plain_models_are_refused(self):
        for source, model in ((MLP, "M"), (CNN, "C")):
            path = self.compile(source)
            for command in ([], ["eval", "--weights", "w"]):
                self.refused(
                    f"mpirun has started 2 ranks, and model {model} is compiled for one: write distributed {{ data = any }} in "
                    f"{self.path('model.ft')}, or compile it with ftc --set distributed.data=any", *command[:1], path, *command[1:],
                    env=self.one_of(2))
            self.start(path, "--steps", 1)

    def test_the_number_must_fit(self):
        path = self.compile(MLP + "distributed { data = 4 }\n")
        sentence = ("model M is compiled for 4 ranks (distributed.data): start it with ftrun --ranks 4, or mpirun -n 4 ftrun")
        self.refused(sentence, path, env={})
        self.refused("mpirun has started 3 ranks, and model M is compiled for 4 (distributed.data)", path, env=self.one_of(3))

    def test_a_rank_leaves_the_word_to_rank_0(self):
        start = time.monotonic()
        done = self.start(self.compile(MLP), env=self.one_of(2, 1), exit_code=1)
        self.assertGreater(time.monotonic() - start, 1)
        self.assertIn("error: rank 1 (host ", done.stderr)

    def test_any_number_is_one_too(self):
        """A model for any number of ranks trains, evaluates and predicts alone, with the numbers of one for one rank."""
        losses = []
        for data in ("1", "any"):
            path = self.compile(MLP, "--set", f"distributed.data={data}")
            self.start(path, "--save", "w.safetensors", "--log-jsonl", "log", "--set", "train.log.console=false")
            losses.append([line["loss"] for line in support.read_jsonl(self.path("log"))])
            self.start("eval", path, "--weights", "w.safetensors")
        self.assertEqual(*losses)

    def test_commands_of_one_process(self):
        path = self.compile(MLP, "--set", "distributed.data=any")
        for command in (["bench", path], ["predict", path, "--weights", "w"], ["generate", path, "--weights", "w"],
                        ["tokenize", path, "--tokenizer", "t"]):
            self.refused(f"ftrun {command[0]} runs as one process, and mpirun has started 2: start it alone", *command, env=self.one_of(2))

    def test_parts_of_parameters_need_their_ranks(self):
        path = self.compile(MLP, "--set", "distributed.data=4", "--set", "distributed.zero=3")
        self.refused("model M is compiled for 4 ranks (distributed.data): start it with ftrun --ranks 4, or mpirun -n 4 ftrun", path, env={})
        sentence = ("model M is compiled for ranks that have a part of its parameters each (distributed.{0}): compile it with ftc --set "
                    "distributed.{0}={1} --set distributed.data=1 to use its weights in one process")
        self.refused(sentence.format("zero", 0), "bench", path, env={})
        path = self.compile(MLP, "--set", "distributed.data=any", "--set", "distributed.tensor=2")
        self.refused(sentence.format("tensor", 1), "bench", path, env={})
        self.refused("model M is compiled for groups of 2 ranks (distributed.tensor), and 3 is no multiple of that: start it with ftrun "
                     "--ranks 2, or more", path, env=self.one_of(3))

    def test_torchrun_without_an_address(self):
        path = self.compile(MLP, "--set", "distributed.data=any")
        variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        done = self.start(path, env=variables, exit_code=3)
        self.assertRegex(done.stderr, r"^error: rank 0 \(host .*\) cannot join the others: RANK and WORLD_SIZE are set, and MASTER_ADDR is not: it says "
                         r"where rank 0 is; or start the ranks by mpirun or srun\n$")

    def test_starting(self):
        path = self.compile(MLP, "--set", "distributed.data=any")
        empty = self.path("empty")
        os.mkdir(empty)
        self.refused("--ranks: there is no mpirun here; install Open MPI (on Debian: apt install openmpi-bin)", path, "--ranks", 2,
                     env={"PATH": empty})
        done = self.start(path, "--ranks", 2, env=self.one_of(2), exit_code=2)
        self.assertIn("--ranks 2: this is rank 0 of 2 already, of those that mpirun has started; leave out --ranks", done.stderr)
        for wrong in ("0", "5000", "two"):
            self.start(path, "--ranks", wrong, exit_code=2)
        self.start("info", path, "--ranks", 2, exit_code=2)

    def test_starts_mpirun(self):
        """By a stand-in that writes down what it is started with."""
        with open(self.path("mpirun"), "w") as file:
            file.write('#!/bin/sh\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit; }\necho "$@"\nexit 7\n')
        os.chmod(self.path("mpirun"), 0o755)
        done = self.start("x.so", "--ranks=3", "--steps", "5", env={"PATH": self.folder + ":" + os.environ["PATH"]}, exit_code=7)
        words = done.stdout.split()
        self.assertEqual(words[-6:], ["-n", "3", os.path.realpath(FTRUN), "x.so", "--steps", "5"])
        self.assertIn("--oversubscribe", words)


@unittest.skipUnless(HAS_MPI, "no mpirun or no libft-mpi.so here")
class Graphs(support.Case):
    """Random steps with collectives between their values, compiled and run over MPI, are those of the interpreter."""

    def test_random_steps(self):
        for ranks, mesh in ((2, "2 1 1"), (4, "2 1 2")):
            command = MPIRUN + ["-n", str(ranks), os.path.join(support.BUILD, "unit", "unit_codegen_ranks"), *mesh.split()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=self.folder)
            self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-3000:])
            self.assertEqual((done.stdout + done.stderr).count("2 test(s) run"), ranks)


# One training in several shapes: ranks x batch is 8 in all of them.
RECIPES = {
    "mlp": ("""
model M(x: f32[B, 8], y: i32[B]) {
  h = dropout(gelu(Linear(16, name="fc1")(x)), 0.2)
  logits = Linear(4, name="head")(h)
  loss = mean(cross_entropy(logits, y))
  metric accuracy = mean(argmax(logits, axis=-1) == y)
  metric total = sum(logits ** 2)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { optimizer = adamw(lr=0.01 per 4, weight_decay=0.1); ema = 0.9; clip = norm(0.5)
""", 2e-5),
    "gpt": ("""
model G(x: i32[B, T=6], y: i32[B, T]) {
  param wte: [11, 8] = normal(0.1)
  h = embed(wte, x)
  q, k, v = split(Linear(24, name="attn")(LayerNorm(name="ln")(h)), 3, axis=-1)
  q = rearrange(q, "b t (h d) -> b h t d", h=2)
  k = rearrange(k, "b t (h d) -> b h t d", h=2)
  v = rearrange(v, "b t (h d) -> b h t d", h=2)
  h = h + dropout(Linear(8, name="out")(rearrange(attention(q, k, v, causal=true, dropout=0.3), "b h t d -> b t (h d)")), 0.1)
  h = h + drop_path(Linear(8, name="down")(gelu(Linear(16, name="up")(LayerNorm(name="ln_2")(h)))), 0.2)
  loss = mean(cross_entropy(LayerNorm(name="ln_f")(h) @ transpose(wte), y, ignore=-1))
}
data D { train = npy("t.npy", "u.npy"); valid = npy("t.npy", "u.npy") }
train { accumulate = 2; optimizer = sgd(lr=0.1, momentum=0.9)
""", 2e-5),
    "cnn": ("""
model C(x: f32[B, 1, 6, 6], y: i32[B]) {
  h = max_pool2d(relu(BatchNorm(name="bn")(Conv2d(3, 3, padding=1, name="conv")(x))), 2)
  loss = mean(cross_entropy(Linear(4, name="head")(flatten(h, from=1)), y))
}
data D { train = npy("i.npy", "y.npy"); valid = npy("i.npy", "y.npy") }
distributed { sync_batch_norm = true }
train { accumulate = 2; optimizer = sgd(lr=0.05, momentum=0.9, nesterov=true); clip = value(0.05); schedule = cosine(warmup=3)
""", 5e-5),
    "bf16": ("""
model M(x: f32[B, 8], y: i32[B]) {
  loss = mean(cross_entropy(Linear(4, name="head")(relu(Linear(16, name="fc1")(x))), y))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { optimizer = adam(lr=0.01); precision = bf16
""", 2e-2),
    "muon": ("""
model M(x: f32[B, 8], y: i32[B]) {
  h = Linear(12, name="in")(x)
  repeat i in 0..3 as h { h = h + Linear(12, name="down", bias=false)(gelu(Linear(20, name="up")(h))) }
  loss = mean(cross_entropy(Linear(4, name="head")(h), y))
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { optimizer = muon(lr=0.01) on rank == 2 and not ("head.*"); accumulate = 2; clip = norm(0.5)
""", 2e-5),
}
WHOLE = 8
MLP_UNEVEN = """
model M(x: f32[B, 8], y: i32[B]) {
  loss = mean(cross_entropy(Linear(4, name="head")(relu(Linear(33, name="fc1")(x))), y))
}
data D { train = npy("x.npy", "y.npy") }
train { optimizer = OPTIMIZER(lr=0.01, eps=0.0); batch = 8 }
"""


def write_tokens(case):
    random = numpy.random.default_rng(1)
    tokens = random.integers(0, 11, (SAMPLES, 6)).astype("i4")
    numpy.save(case.path("t.npy"), tokens)
    numpy.save(case.path("u.npy"), numpy.where(random.random((SAMPLES, 6)) < 0.4, -1, tokens[:, ::-1]).astype("i4"))


@unittest.skipUnless(HAS_MPI, "no MPI: libft-mpi.so or mpirun is missing")
class Joined(Ranks):
    def setUp(self):
        super().setUp()
        write_tokens(self)

    def artifact(self, recipe, ranks, *flags, zero=0, tensor=1, pipeline=1):
        source = RECIPES[recipe][0] + f"  batch = {WHOLE * tensor * pipeline // ranks}; seed = 5; epochs = 3; eval every 1 epoch; log {{ every = 1 steps; grad_norm }} }}\n"
        is_known = zero or recipe == "muon"  # who does which of its matrices is decided as it is compiled
        shares = ["--set", f"distributed.data={ranks // tensor // pipeline if is_known else 'any'}", "--set", f"distributed.zero={zero}",
                  "--set", f"distributed.tensor={tensor}", "--set", f"distributed.pipeline={pipeline}"]
        return self.compile(source, *shares, *flags, name=f"{recipe}-{ranks}-{zero}-{tensor}-{pipeline}.so")

    def train(self, recipe, ranks, *flags, name="run", zero=0, tensor=1, pipeline=1, compile=()):
        """What the log and --save hold."""
        log, weights = self.path(name + ".jsonl"), self.path(name + ".safetensors")
        self.start(self.artifact(recipe, ranks, *compile, zero=zero, tensor=tensor, pipeline=pipeline), "--log-jsonl", log, "--save", weights, *flags, ranks=ranks)
        return support.read_jsonl(log), support.read_safetensors(weights)

    def assert_same(self, one, other, tolerance):
        self.assertEqual([line["step"] for line in one[0]], [line["step"] for line in other[0]])
        for a, b in zip(one[0], other[0]):
            for key in a:
                if key != "samples_per_s":
                    self.assertLessEqual(abs(a[key] - b[key]), tolerance * (1 + abs(a[key])), (key, a, b))
        for name in one[1]:
            numpy.testing.assert_allclose(other[1][name], one[1][name], rtol=tolerance, atol=tolerance, err_msg=name)

    def test_trains_as_one(self):
        """Losses, metrics, evaluations and final weights of 2 and 4 ranks are those of one with the whole batch."""
        for turn, (recipe, (_, tolerance)) in enumerate(RECIPES.items()):
            one = self.train(recipe, 1)
            self.assertGreater(one[0][0]["loss"] - one[0][-1]["loss"], 0.01, "this trains nothing")
            for ranks in by_turns((2, 4), turn):
                with self.subTest(recipe=recipe, ranks=ranks):
                    self.assert_same(one, self.train(recipe, ranks), tolerance)

    def test_ranks_that_share_out_train_as_one(self):
        """So they do where each has a part of the optimizer's states, gradients and parameters, and where groups of them share each
        layer's work."""
        for turn, (recipe, (_, tolerance)) in enumerate(RECIPES.items()):
            ema = ["--save-ema", "ema.safetensors"] if recipe == "mlp" else []
            one = self.train(recipe, 1, *ema)
            averages = support.read_safetensors(self.path("ema.safetensors")) if ema else {}
            shapes = ((2, 1, 1), (2, 2, 1), (2, 3, 1), (4, 3, 1), (2, 0, 2), (4, 0, 4), (4, 1, 2), (4, 3, 2))
            for ranks, zero, tensor in by_turns(shapes, turn):
                with self.subTest(recipe=recipe, ranks=ranks, zero=zero, tensor=tensor):
                    self.assert_same(one, self.train(recipe, ranks, *ema, zero=zero, tensor=tensor), tolerance)
                    for name in averages:
                        have = support.read_safetensors(self.path("ema.safetensors"))[name]
                        numpy.testing.assert_allclose(have, averages[name], rtol=tolerance, atol=tolerance, err_msg=name)

    def test_padding_stays_zero(self):
        """Behind the end of an uneven part of a parameter, gradients and moments are 0, and eps = 0 divides 0 by 0 there."""
        for turn, optimizer in enumerate(("adam", "adagrad", "rmsprop", "muon")):
            source = MLP_UNEVEN.replace("OPTIMIZER", optimizer)
            trained = []
            for tensor, zero in ((1, 0), (2, 0)) + (((2, 2),) if turn == 0 else ()):
                ranks = 1 if tensor == 1 else tensor * (2 if zero else 1)
                shares = [f"--set=distributed.{name}={value}" for name, value in (("data", ranks // tensor), ("zero", zero), ("tensor", tensor))]
                path = self.compile(source, *shares, "--set", f"train.batch={WHOLE * tensor // ranks}", name=f"{optimizer}-{tensor}-{zero}.so")
                self.start(path, "--steps", 10, "--save", "w.safetensors", ranks=ranks)
                trained.append(support.read_safetensors(self.path("w.safetensors")))
            for other in trained[1:]:
                for name, value in trained[0].items():
                    numpy.testing.assert_allclose(other[name], value, rtol=2e-5, atol=2e-5, err_msg=f"{optimizer} {name}")

    def test_pieces_train_as_one(self):
        """So they do where what layers join and gather is cut into pieces of the batch, beside the products of the others; and from
        run to run the weights have the same bits."""
        one = self.train("gpt", 1)
        for ranks, zero, count in ((2, 0, 2), (2, 0, 4), (4, 3, 2)):
            with self.subTest(ranks=ranks, zero=zero, pieces=count):
                pieces = ["--set", f"distributed.pieces={count}"]
                many = [self.train("gpt", ranks, zero=zero, tensor=2, compile=pieces, name=f"many{again}") for again in range(2)]
                self.assert_same(one, many[0], RECIPES["gpt"][1])
                for name, value in many[0][1].items():
                    numpy.testing.assert_array_equal(value, many[1][1][name], err_msg=name)

    def test_stages_train_as_one(self):
        """So they do where each rank runs the plan of its stage of a pipeline, which takes all parts of a batch in one run; with the
        checkpoint of a pipeline another mesh goes on, and the other way round."""
        for recipe in ("mlp", "gpt"):
            parts = ["--set", "train.accumulate=2"]
            one = self.train(recipe, 1, compile=parts)
            for ranks, more in ((2, {}), (4, {}), (4, {"tensor": 2}), (4, {"zero": 1})):
                with self.subTest(recipe=recipe, ranks=ranks, **more):
                    self.assert_same(one, self.train(recipe, ranks, pipeline=2, compile=parts, **more), RECIPES[recipe][1])
        for turn, recipe in enumerate(("cnn", "bf16", "muon")):
            parts = ["--set", "train.accumulate=3"]
            one = self.train(recipe, 1, compile=parts)
            for ranks, more in by_turns(((2, {}), (4, {"zero": 3}), (4, {"tensor": 2})), turn):
                with self.subTest(recipe=recipe, ranks=ranks, **more):
                    self.assert_same(one, self.train(recipe, ranks, pipeline=2, compile=parts, **more), RECIPES[recipe][1])
        parts = ["--set", "train.accumulate=4"]
        one = self.train("gpt", 1, compile=parts)
        for again in range(2):
            many = self.train("gpt", 2, pipeline=2, compile=[*parts, "--set", "distributed.interleave=2"], name=f"many{again}")
            self.assert_same(one, many, RECIPES["gpt"][1])
        for name, value in many[1].items():
            numpy.testing.assert_array_equal(value, support.read_safetensors(self.path("many0.safetensors"))[name], err_msg=name)
        half = ["--set", "train.checkpoint.dir=ck", "--steps", "3"]
        whole = self.train("mlp", 1)
        for before, after in (((2, 2), (1, 1)), ((1, 1), (2, 2)), ((4, 2), (2, 2))):
            with self.subTest(before=before, after=after):
                shutil.rmtree(self.path("ck"), ignore_errors=True)
                self.train("mlp", before[0], *half, pipeline=before[1])
                on = self.train("mlp", after[0], "--resume", "ck", pipeline=after[1])
                on[0][:0] = whole[0][:len(whole[0]) - len(on[0])]
                self.assert_same(whole, on, RECIPES["mlp"][1])

    def rounded(self, ranks, zero, steps, *flags, tensor=1):
        """The bits of parameters that are kept as bf16 and rounded by random numbers."""
        source = RECIPES["bf16"][0].replace("precision = bf16", "precision = bf16(parameters=bf16)") + f"  batch = {WHOLE * tensor // ranks}; seed = 5 }}\n"
        path = self.compile(source, "--set", f"distributed.data={ranks // tensor}", "--set", f"distributed.zero={zero}",
                            "--set", f"distributed.tensor={tensor}", name=f"rounded-{ranks}-{zero}-{tensor}.so")
        self.start(path, "--set", f"train.steps={steps}", "--save", "rounded", *flags, ranks=ranks)
        weights = support.read_safetensors(self.path("rounded"))
        return numpy.concatenate([weights[name].ravel() for name in sorted(weights)])

    def test_rounds_as_one(self):
        """An element's random number does not depend on which rank has it, nor on where: with as many ranks the same bits, whatever
        they share out, and where they go on from each other's checkpoints; with another number but for the order of sums."""
        whole = self.rounded(2, 0, 6)
        numpy.testing.assert_array_equal(self.rounded(2, 3, 6), whole)
        self.rounded(2, 3, 3, "--set", "train.checkpoint.dir=ck")
        numpy.testing.assert_array_equal(self.rounded(2, 0, 6, "--resume", "ck"), whole)
        one = self.rounded(1, 0, 1)
        for ranks, zero, tensor in ((2, 0, 1), (4, 1, 1), (2, 0, 2), (4, 3, 2)):
            self.assertGreater((self.rounded(ranks, zero, 1, tensor=tensor) == one).mean(), 0.97, (ranks, zero, tensor))

    def test_initial_values(self):
        """Those of one rank, to the bit, also where parameters are read in another order than they stand in."""
        source = """
model M(x: f32[B, 8], y: i32[B]) {
  first = relu(Linear(40, name="first")(x))
  param late: [40] = normal(0.5)
  param unread: [1, 3, 2] = uniform(0, 1)
  h = Linear(40, name="second")(first)
  loss = mean(cross_entropy(Linear(4, name="head")(h * late), y)) + 0.001 * sum(abs(unread))
}
data D { train = npy("x.npy", "y.npy") }
train { optimizer = adam(lr=0.01); batch = 4; seed = 5 }
"""
        self.start(self.compile(source), "--steps", 0, "--save", "one.safetensors")
        one = support.read_safetensors(self.path("one.safetensors"))
        for shape in (["data=2", "zero=1"], ["data=2", "zero=3"], ["data=1", "tensor=2"]):
            path = self.compile(source, *(word for of in shape for word in ("--set", "distributed." + of)), name="many.so")
            self.start(path, "--steps", 0, "--save", "many.safetensors", ranks=2)
            many = support.read_safetensors(self.path("many.safetensors"))
            for name in one:
                numpy.testing.assert_array_equal(many[name], one[name], err_msg=f"{name}, {shape}")

    def test_bitwise_from_run_to_run(self):
        for zero, tensor in ((0, 1), (3, 1), (0, 2)):
            first, second = (self.train("gpt", 2, name=name, zero=zero, tensor=tensor) for name in "ab")
            for name in first[1]:
                numpy.testing.assert_array_equal(first[1][name], second[1][name], err_msg=name)

    def test_follows_pytorch(self):
        """The losses of 3 ranks are those that PyTorch has for the whole batch, in float64 from the same weights."""
        torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else self.skipTest("no PyTorch here")
        random, steps, batch = numpy.random.default_rng(2), 30, 12
        weights = {"fc1.weight": (16, 8), "fc1.bias": (16,), "head.weight": (4, 16), "head.bias": (4,)}
        weights = {name: random.standard_normal(shape).astype("f4") / 3 for name, shape in weights.items()}
        support.write_safetensors(self.path("w.safetensors"), weights)
        path = self.compile(RECIPES["bf16"][0].replace("adam(lr=0.01); precision = bf16", "sgd(lr=0.1, momentum=0.9)")
                            + "  batch = 4; log { every = 1 steps } }\ndistributed { data = 3 }\n")
        self.start(path, "--steps", steps, "--no-shuffle", "--init", "w.safetensors", "--log-jsonl", "log", "--set", "train.eval.every=0", ranks=3)
        w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
        optimizer = torch.optim.SGD(w.values(), lr=0.1, momentum=0.9)
        x, y = (torch.tensor(numpy.load(self.path(name))) for name in ("x.npy", "y.npy"))
        for step, line in enumerate(support.read_jsonl(self.path("log"))):
            at = step % (SAMPLES // batch) * batch
            hidden = torch.relu(x[at : at + batch].double() @ w["fc1.weight"].T + w["fc1.bias"])
            loss = torch.nn.functional.cross_entropy(hidden @ w["head.weight"].T + w["head.bias"], y[at : at + batch].long())
            self.assertLess(abs(loss.item() - line["loss"]), 1e-5 * (1 + abs(loss.item())), line)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.assertEqual(step, steps - 1)

    def test_goes_on_with_other_numbers(self):
        """4 ranks, then 1, then 2, …, each from the checkpoint before, some sharing out what they have: the trajectory of one."""
        for recipe in ("mlp", "gpt") if SOAK else ("mlp",):
            one = self.train(recipe, 1, name="one")
            total = max(line["step"] for line in one[0])
            shapes = ((4, 0, 1), (1, 0, 1), (2, 3, 1), (4, 1, 2), (4, 2, 1), (2, 0, 2), (4, 0, 1))
            for number, (ranks, zero, tensor) in enumerate(shapes):
                last = total * (number + 1) // 7
                log = self.train(recipe, ranks, "--epochs", 3, "--set", f"train.steps={total}", "--set", "train.checkpoint.dir=ck",
                                 "--steps", last, "--resume", "ck", "--or-start", name="parts", zero=zero, tensor=tensor)[0]
                self.assertEqual(max(line["step"] for line in log), last)
            done = self.start(self.artifact(recipe, 4), "--resume", "ck", ranks=2, exit_code=1)
            self.assertIn("it cannot go on exactly but on 4 ranks (--init ", done.stderr)
            self.assert_same(one, (log, support.read_safetensors(self.path("parts.safetensors"))), RECIPES[recipe][1])
            shutil.rmtree(self.path("ck"))

    def test_one_writes_and_one_speaks(self):
        path = self.artifact("mlp", 2)
        done = self.start(path, "--set", "train.checkpoint.dir=ck", "--set", "train.checkpoint.every=1", "--save", "w.safetensors",
                          "--trace", "trace.json", "--steps", 3, ranks=2)
        lines = done.stdout.splitlines()
        self.assertEqual(sum("samples to train" in line for line in lines), 1)
        self.assertEqual(sum("step 3/3" in line and "valid" not in line for line in lines), 1)
        self.assertIn("batch 8 (2 ranks x 4), 12 steps an epoch, 3 in all", done.stdout)
        self.assertRegex(done.stdout, r"\nranks: 2 ranks")
        self.assertEqual(done.stderr, "")
        self.assertEqual(sorted(os.listdir(self.path("ck"))), ["step-00000003.safetensors"])
        again = self.start("eval", path, "--weights", "w.safetensors", ranks=2).stdout
        one = self.start("eval", self.artifact("mlp", 1), "--weights", "w.safetensors").stdout
        self.assertEqual(again.splitlines()[-1].split("(")[0], one.splitlines()[-1].split("(")[0])

    def differ(self, sentence, *others, model="mlp", all=()):
        """Rank 1 of three has flags of its own."""
        path = self.artifact(model, 4)
        command = [FTRUN, path, "--steps", "2", *all]
        line = MPIRUN + ["-n", "1", *command, ":", "-n", "1", *(others if others[0].endswith("ftrun") else [*command[:4], *others]), ":", "-n", "1", *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("error")]
        self.assertEqual(len(said), 1, done.stderr)
        self.assertRegex(said[0], sentence)

    def test_what_differs_is_named(self):
        self.differ("^error: the setting train.lr of rank 1 is not the same as rank 0's$", "--set", "train.lr=0.02")
        os.mkdir(self.path("other"))
        for name in ("x.npy", "y.npy"):
            shutil.copy(self.path(name), self.path("other"))
        values = numpy.load(self.path("x.npy"))
        values[-1] += 1
        numpy.save(self.path("other", "x.npy"), values)
        self.differ("^error: the train data of rank 1 is not the same as rank 0's$", "--data", self.path("other"))
        self.differ(r"^error: rank 1 \(host .*\): train: x.npy not found: --data .* is no folder", "--data", self.path("ck"))
        for name, value in (("v", 0), ("w", 1)):
            support.write_safetensors(self.path(name), {"fc1.weight": numpy.zeros((16, 8), "f4"), "fc1.bias": numpy.zeros(16, "f4"),
                                                        "head.weight": numpy.zeros((4, 16), "f4"), "head.bias": numpy.full(4, value, "f4")})
        self.differ("^error: the values to begin with of rank 1 ", "--init", self.path("w"), all=("--init", self.path("v")))
        for flag in (["--no-shuffle"], ["--resume", "ck"]):
            self.differ(f"^error: {flag[0]} of rank 1 is not the same as rank 0's$", *flag)
        self.differ("^error: the setting train.total_steps of rank 1 ", "--steps", "3")
        other = shutil.copytree(os.path.dirname(FTRUN), self.path("bin"))
        subprocess.run(["strip", os.path.join(other, "ftrun")], check=True)
        shutil.copytree(os.path.join(support.BUILD, "lib"), self.path("lib"))
        self.differ(r"^error: the program \(ftrun\) of rank 1 ", os.path.join(other, "ftrun"), self.path("mlp-4-0-1-1.so"), "--steps", "2")
        self.compile(RECIPES["mlp"][0].replace("gelu", "relu") + "batch = 2 }", "--set", "distributed.data=any", name="o.so")
        self.differ("^error: the artifact of rank 1 ", FTRUN, self.path("o.so"), "--steps", "2")

    def run_on(self, path, *flags, by_mpirun=True):
        """A long training on four ranks with a checkpoint every epoch; returns when it has made some steps."""
        command = [path, "--set", "train.checkpoint.dir=ck", "--set", "train.eval.every=0", "--epochs", "1000000", *flags]
        line = MPIRUN + ["-n", "4", FTRUN, *command] if by_mpirun else [FTRUN, *command, "--ranks", "4"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        for _ in range(40):
            process.stdout.readline()
        return process

    def end_of(self, process):
        """Its output; a run that does not end leaves what its threads wait for in the failure."""
        try:
            return process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            threads = subprocess.run(["ps", "-eLo", "pid,ppid,lwp,stat,pcpu,wchan:24,args"], capture_output=True, text=True).stdout
            lines = [line for line in threads.splitlines() if "mpirun" in line or os.path.basename(self.folder) in line]
            subprocess.run(["pkill", "-KILL", "-f", os.path.basename(self.folder)])
            out, err = process.communicate(timeout=60)
            self.fail("it did not end in 60 s\n" + "\n".join(lines) + "\n" + out[-1000:] + err)

    def ranks_of(self, process):
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        self.assertEqual(len(children), 4)
        return sorted(map(int, children))

    def test_a_users_error_of_one_rank(self):
        """In the middle of a training: exit code 1 as of one rank alone, the sentence on the console and in the log."""
        labels = numpy.load(self.path("y.npy"))
        labels[20] = 9
        numpy.save(self.path("y.npy"), labels)
        for ranks in (1, 4):
            done = self.start(self.artifact("mlp", ranks), "--no-shuffle", "--log-jsonl", "log", ranks=ranks, exit_code=1)
            self.assertEqual(done.stderr.count("sample 20 of y.npy holds 9, but input y takes 0 to 3"), 1, done.stderr)
        error = support.read_log(self.path("log"))[-1]
        # which step rank 0 is in as it hears of it, and whether at a collective or before, is a matter of time
        self.assertIn(error["step"], (1, 2, 3))
        self.assertRegex(error["error"], r"^(step \d: )?rank 2 \(host .*\) has failed: .*sample 20 of y.npy holds 9")

    def test_a_signal_to_one_ends_all(self):
        """After the same step, with a checkpoint that goes on; also Ctrl-C for ftrun --ranks."""
        path = self.artifact("mlp", 4)
        for by_mpirun in (True, False):
            process = self.run_on(path, by_mpirun=by_mpirun)
            target = self.ranks_of(process)[2] if by_mpirun else process.pid
            os.kill(target, signal.SIGTERM if by_mpirun else signal.SIGINT)
            out, err = self.end_of(process)
            self.assertEqual(process.returncode, 128 + (signal.SIGTERM if by_mpirun else signal.SIGINT), out[-500:] + err)
            self.assertIn("the same command with --resume ck goes on", out)
            steps = int(out.split("stopped after step ")[1].split(";")[0])
            self.assertIn(f"step-{steps:08d}.safetensors", os.listdir(self.path("ck")))
            shutil.rmtree(self.path("ck"))
        end, left = time.monotonic() + 15, "?"  # launcher.c: one that waits five seconds may still be there
        while left and time.monotonic() < end:
            left = subprocess.run(["pgrep", "-f", path], capture_output=True, text=True).stdout
        self.assertEqual(left, "")

    def test_divergence_is_told_once(self):
        done = self.start(self.artifact("mlp", 4), "--set", "train.lr=1e30", ranks=4, exit_code=1)
        self.assertEqual(done.stderr.count("the training has diverged"), 1, done.stderr)


if __name__ == "__main__":
    support.main()
