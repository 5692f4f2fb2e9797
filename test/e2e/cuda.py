"""The cuda device on a driver without a GPU (test/fake), whose kernels run in the simulator: the
same losses as --device sim to the last bit, whatever the order in which streams and graph nodes get
on; nothing waits for a step; and each fault gives one clear line and the right exit code."""
import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

FAKE = os.path.join(support.BUILD, "fake")
INPUTS = os.path.join(support.ROOT, "test", "lit", "ftrun", "Inputs")
DRIVER = os.path.join(FAKE, "libfake_cuda.so")
BLAS = os.path.join(FAKE, "libfake_blas.so")


@functools.cache
def prepared():
    """tiny.ptx and its data, made once. Its products are launches of their own, which cuBLASLt can take."""
    folder = tempfile.TemporaryDirectory(prefix="ft-test-")
    subprocess.run([sys.executable, os.path.join(INPUTS, "make_data.py"), folder.name], check=True)
    support.run("ftc", os.path.join(INPUTS, "tiny.ft"), "--disable=row_chains", "-o", os.path.join(folder.name, "tiny.ptx"))
    return folder


class CudaCase(support.Case):
    """A folder with tiny.ptx and its data; runs count what the driver was asked for."""

    def setUp(self):
        super().setUp()
        shutil.copytree(prepared().name, self.folder, dirs_exist_ok=True)
        self.artifact = self.path("tiny.ptx")

    def environment(self, **fake):
        settings = {f"FT_FAKE_CUDA_{name}": str(value) for name, value in fake.items() if name.isupper()}
        given = {name: str(value) for name, value in fake.items() if name.startswith("FT_")}
        settings = {name: value for name, value in settings.items() if not name.startswith("FT_FAKE_CUDA_FT_")}
        base = {"FT_CUDA_LIBRARY": DRIVER, "FT_CUBLASLT": "own", "FT_FAKE_CUDA_REPORT": self.path("report")}
        return {**base, **settings, **given}

    def ftrun(self, *arguments, device="cuda", check=True, **fake):
        return support.run("ftrun", *arguments, "--device", device, check=check, cwd=self.folder, env=self.environment(**fake))

    def report(self):
        with open(self.path("report")) as file:
            return {name: int(value) for name, value in (line.split() for line in file)}

    def losses(self, *arguments, artifact=None, **options):
        """Every logged step's own numbers, without times."""
        log = self.path("log.jsonl")
        self.ftrun(artifact or self.artifact, *arguments, "--log-jsonl", log, "--set", "train.log.every=1", **options)
        return [{k: v for k, v in line.items() if k != "samples_per_s"} for line in support.read_jsonl(log)]

    def refused(self, exit_code, needle, *arguments, **options):
        done = self.ftrun(self.artifact, *arguments, check=False, **options)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, exit_code, said)
        self.assertIn(needle, said)
        self.assertEqual(done.stderr.count("error:"), 1, said)
        for trace in ("Sanitizer", "Segmentation", "fake CUDA driver"):
            self.assertNotIn(trace, said)
        return done


class Numbers(CudaCase):
    def test_same_losses_in_any_order(self):
        truth = self.losses("--epochs", 2, device="sim")
        self.assertEqual(sum(1 for line in truth if "eval" not in line), 50)
        for seed, keep in support.of_this_turn([(seed, keep) for seed in (0, 1, 6, 8) for keep in (0, 1)], 3):
            got = self.losses("--epochs", 2, SEED=seed, FT_KEEP_DATA=keep)
            self.assertEqual(got, truth, f"seed {seed}, data kept {keep}")
            self.assertEqual(self.report()["left"], 0, "memory that was not freed")

    def test_many_launches_in_a_row(self):
        """Nothing but the events keeps slots, results and pinned batches from being overwritten."""
        flags = ["--steps", 300, "--set", "train.eval.every=0"]
        truth = self.losses(*flags, device="sim")
        for seed, keep in support.of_this_turn([(seed, keep) for seed in (0, 1, 2, 4, 8) for keep in (1, 0)], 3):  # each stream slow in turn, and none
            got = self.losses(*flags, "--set", "data.workers=2", "--set", "data.prefetch=1", SEED=seed, FT_KEEP_DATA=keep)
            self.assertEqual(got, truth, (seed, keep))

    def test_without_graphs(self):
        truth = self.losses("--steps", 30, device="sim")
        self.assertEqual(self.losses("--steps", 30, FT_CUDA_NO_GRAPH=1, SEED=5), truth)
        self.assertEqual(self.report()["graph_launch"], 0)

    def test_a_driver_that_takes_no_edges(self):
        truth = self.losses("--steps", 30, device="sim")
        self.assertEqual(self.losses("--steps", 30, NO_EDGES=1, SEED=6), truth)
        self.assertGreater(self.report()["graph_launch"], 0)

    def test_outputs_too_large_for_every_slot(self):
        source = """model Wide(image: u8[B, 4, 4], label: i32[B]) {
  x = flatten(f32(image) / 255, from=1)
  y = Linear(4, name="fc")(x)
  loss = mean(cross_entropy(y, label))
  output wide = broadcast_to(reshape(y, [B, 4, 1]), [B, 4, 140000])
}
data D { train = idx("train-x.gz", "train-y") }
train { model = Wide; data = D; batch = 8; epochs = 1; seed = 3; optimizer = sgd(lr=0.1) }
"""
        artifact = self.compile(source, name="wide.ptx")
        for keep in (0, 1):
            got = self.losses("--steps", 5, artifact=artifact, SEED=4, FT_KEEP_DATA=keep)
            self.assertEqual(got, self.losses("--steps", 5, artifact=artifact, device="sim"))

    def test_weights_eval_and_predict(self):
        numpy.save(self.path("x.npy"), numpy.load(self.path("valid-x.npy"))[:19])
        for device in ("sim", "cuda"):
            weights = self.path(f"{device}.safetensors")
            self.ftrun(self.artifact, "--epochs", 1, "--save", weights, device=device, SEED=7)
            seen = support.run("ftrun", "eval", self.artifact, "--weights", weights, "--device", device, cwd=self.folder, env=self.environment(SEED=8)).stdout
            seen = re.search(r"loss \S+  accuracy \S+", seen).group(0)
            output = self.path(f"{device}.npy")
            support.run("ftrun", "predict", self.artifact, "--weights", weights, "--device", device, "--input", f"image={self.path('x.npy')}", "--output", output, cwd=self.folder, env=self.environment(SEED=9))
            if device == "sim":
                truth = support.read_safetensors(weights), seen, numpy.load(output)
        for name, value in truth[0].items():
            numpy.testing.assert_array_equal(support.read_safetensors(weights)[name], value)
        self.assertEqual(seen, truth[1])
        numpy.testing.assert_array_equal(numpy.load(output), truth[2])

    def test_resume_is_exact(self):
        folder = ["--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=10", "--set", f"train.checkpoint.dir={self.path('c')}"]
        truth = self.losses("--steps", 60)
        self.ftrun(self.artifact, "--steps", 30, *folder)
        log = self.path("log.jsonl")
        os.unlink(log)
        self.ftrun(self.artifact, "--steps", 60, "--resume", self.path("c"), "--log-jsonl", log, "--set", "train.log.every=1", SEED=4)
        rest = {line["step"]: line["loss"] for line in support.read_jsonl(log) if "eval" not in line}
        want = {line["step"]: line["loss"] for line in truth if "eval" not in line and line["step"] > 30}
        self.assertEqual(rest, want)

    def test_checkpoints_beside_the_steps(self):
        """From a copy on the GPU if it has the room, else from one on the host: the same files, while steps run on."""
        def files(name, **options):
            self.ftrun(self.artifact, "--steps", 14, "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=3", "--set",
                       "train.checkpoint.keep=9", "--set", f"train.checkpoint.dir={self.path(name)}", **options)
            contents = {file: open(self.path(name, file), "rb").read() for file in os.listdir(self.path(name))}
            self.assertIn("step-00000012.safetensors", contents)
            return contents

        truth = files("sim", device="sim")
        for seed in support.of_this_turn((0, 1, 6, 27), 2):
            self.assertTrue(files(f"device{seed}", SEED=seed, FT_KEEP_DATA=0) == truth)
            self.assertGreater(self.report()["on_device"], 3)
        self.ftrun(self.artifact, "--steps", 14, FT_KEEP_DATA=0)
        room = self.report()["peak"] + 4096
        self.assertTrue(files("host", SEED=3, FT_KEEP_DATA=0, MEMORY=room) == truth)
        self.assertEqual(self.report()["on_device"], 0)

    def test_averages_are_rounded_on_the_gpu(self):
        """Evaluations of rounded averages: the simulator's numbers, and not a copy more than without rounding."""
        with open(os.path.join(INPUTS, "tiny.ft")) as file:
            source = file.read().replace("seed = 3", "seed = 3; ema = 0.7; precision = %s")
        flags = ["--steps", 12, "--set", "train.eval.unit=step", "--set", "train.eval.every=3"]
        copies = []
        for precision, narrow in (("f32", b"place narrow 0 "), ("bf16", None), ("fp16", None)):
            artifact = self.compile(source % precision, "--gpu", "sm_80", name=f"{precision}.ptx")
            with open(artifact, "rb") as file:
                self.assertEqual(b"place narrow 0 " in file.read(), narrow is not None)
            truth = self.losses(*flags, artifact=artifact, device="sim")
            self.assertIn("ema_loss", truth[-1])
            self.assertNotEqual(truth[-1]["loss"], truth[-1]["ema_loss"])
            for seed in support.of_this_turn((0, 5, 14), 3):
                self.assertEqual(self.losses(*flags, artifact=artifact, SEED=seed), truth, (precision, seed))
            self.losses(*flags, artifact=artifact, FT_KEEP_DATA=0)
            copies.append({name: count for name, count in self.report().items() if name in ("to_host", "pageable", "synchronize")})
        self.assertEqual(copies[1], copies[0])
        self.assertEqual(copies[2]["to_host"], copies[0]["to_host"])  # the scale's states are written at the start

    def test_trace_check_and_overfit(self):
        for flags in (["--trace", self.path("t.json")], ["--check=nan"], ["--overfit-batch"]):
            truth = self.losses("--steps", 12, *flags, device="sim")
            self.assertEqual(self.losses("--steps", 12, *flags, SEED=2), truth, flags)


class Waiting(CudaCase):
    """The counts of the driver's calls must not grow with the number of steps."""

    def counts(self, steps, *flags, keep=0, every=10**6):
        self.ftrun(self.artifact, "--steps", steps, "--set", f"train.log.every={every}", "--set", "train.eval.every=0", *flags, FT_KEEP_DATA=keep)
        return self.report()

    def test_steps_from_the_host(self):
        few, many = self.counts(20), self.counts(80)
        for name in ("synchronize", "pageable", "to_host", "graph_make", "wait_young", "memory_alloc"):
            self.assertEqual(few[name], many[name], name)
        self.assertEqual(many["graph_launch"], 80)
        self.assertEqual(many["graph_make"], 4)
        self.assertEqual(many["to_device"] - few["to_device"], 60)  # a batch a step
        self.assertEqual(many["memory_alloc"], 1)
        self.assertGreaterEqual(many["most_ahead"], 3)  # two more batches sent before a step has begun

    def test_steps_on_kept_data(self):
        few, many = self.counts(128, keep=1), self.counts(512, keep=1)
        for name in ("synchronize", "pageable", "to_host", "to_device", "wait_young", "memory_alloc"):
            self.assertEqual(few[name], many[name], name)
        self.assertLessEqual(many["graph_launch"], 512 / 32)
        self.assertEqual(many["memory_alloc"], 2)  # the places, and the data
        self.assertEqual(many["launch"] - few["launch"], (many["graph_launch"] - few["graph_launch"]) * 2)  # two gathers a launch

    def test_log_lines_wait_for_nothing(self):
        silent, talking = self.counts(80), self.counts(80, every=4)
        self.assertEqual(silent["synchronize"], talking["synchronize"])
        self.assertEqual(silent["pageable"], talking["pageable"])
        self.assertGreaterEqual(talking["to_host"] - silent["to_host"], 19)

    def test_an_evaluation_does_not_wait_for_each_batch(self):
        def after(evaluations):
            self.ftrun(self.artifact, "--steps", 32, "--set", "train.eval.unit=step", "--set", f"train.eval.every={32 // evaluations}", FT_KEEP_DATA=0)
            return self.report()["synchronize"]

        def each():
            return (after(4) - after(1)) / 3

        few = each()
        for name in ("valid-x.npy", "valid-y.npy"):
            numpy.save(self.path(name), numpy.concatenate([numpy.load(self.path(name))] * 9))
        self.assertEqual(each(), few)  # 5 batches and 5 samples, then 50 batches and 5


class Library(CudaCase):
    """cuBLASLt, in plain loops: other roundings than ours, so close and not equal. Of launches that are joined, or go by rows, it could take none's place."""

    def compile(self, source, *flags, name):
        return super().compile(source, *flags, "--disable=join_launches,row_chains", name=name)

    def library(self, **more):
        return dict(FT_CUBLASLT_LIBRARY=BLAS, FT_CUBLASLT="", CC=80, **more)

    def test_first_proposal(self):
        truth = self.losses("--steps", 30, device="sim")
        got = self.losses("--steps", 30, **{**self.library(SEED=3), "FT_CUBLASLT": "library"})
        self.assertGreater(self.report()["library_call"], 0)
        for a, b in zip(got, truth, strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-4 * b["loss"])

    def test_timing_chooses_and_remembers(self):
        truth = self.losses("--steps", 10, device="sim")
        got = self.losses("--steps", 10, **self.library(FT_FAKE_BLAS_SLOW=1))
        first = self.report()
        self.assertEqual([line["loss"] for line in got], [line["loss"] for line in truth])  # ours are faster
        self.assertGreater(first["library_call"], 0)
        with open(self.artifact + ".tune") as file:
            rows = file.read().splitlines()
        self.assertTrue(rows[0].startswith("ft-tune 1 cublaslt 120405 cuda 12040 "), rows[0])
        self.assertTrue(rows[1:] and all(row.endswith(" = own") for row in rows[1:]), rows)
        self.losses("--steps", 10, **self.library())
        self.assertEqual(self.report()["library_call"], 0)  # known by now

    def test_a_choice_in_the_file_is_taken(self):
        self.losses("--steps", 10, **self.library(FT_FAKE_BLAS_SLOW=1))
        with open(self.artifact + ".tune") as file:
            text = file.read()
        algorithm = "%016x%016x" % (3, 0xFEED) + "0" * 96
        with open(self.artifact + ".tune", "w") as file:
            file.write(text.replace(" = own", " = library " + algorithm))
        self.losses("--steps", 10, **self.library())
        self.assertGreater(self.report()["library_call"], 0)
        before = self.report()["kernel"]
        with open(self.artifact + ".tune", "w") as file:
            file.write("ft-tune 1 of another GPU\n" + text)
        self.losses("--steps", 10, **self.library(FT_FAKE_BLAS_SLOW=1))
        self.assertGreater(self.report()["kernel"], before)

    def test_two_calls_are_one_choice(self):
        """Both or none, in the file too; a row of one of them is timed again."""
        artifact = self.compile(self.EPILOGUES, "--set", "train.precision=bf16", name="two.ptx")
        own = self.losses("--steps", 3, artifact=artifact, **self.library(FT_FAKE_BLAS_SLOW=1))
        with open(artifact + ".tune") as file:
            rows = file.read().splitlines()
        algorithm = " %016x%016x" % (3, 0xFEED) + "0" * 96
        for calls in (2, 1):
            changed = [row.replace(" = own", " = library" + calls * algorithm) if " also matmul " in row else row for row in rows]
            self.assertEqual(sum(a != b for a, b in zip(rows, changed)), 1)  # gelu's gradient; relu's has no bits
            with open(artifact + ".tune", "w") as file:
                file.write("\n".join(changed) + "\n")
            got = self.losses("--steps", 3, artifact=artifact, **self.library(FT_FAKE_BLAS_SLOW=1))
            with open(artifact + ".tune") as file:
                self.assertEqual(file.read().splitlines(), changed if calls == 2 else rows)
            self.assertEqual([line["loss"] for line in got] == [line["loss"] for line in own], calls == 1)
            for a, b in zip(got, own, strict=True):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-2 * b["loss"])

    def test_a_damaged_file_is_passed_over(self):
        """With a word, and it is whole again afterwards."""
        truth = self.losses("--steps", 5, device="sim")
        self.ftrun(self.artifact, "--steps", 5, **self.library(FT_FAKE_BLAS_SLOW=1))
        tune = self.artifact + ".tune"
        with open(tune, "rb") as file:
            whole = file.read()
        rows = whole.splitlines(keepends=True)
        other = rows[0].replace(b"12040", b"13000")
        for damage, word in ((b"", "is damaged: products"), (b"\x00\xff" * 400, "is damaged: products"), (other + b"".join(rows[1:]), "is of another GPU, driver or library"),
                             (rows[0] + rows[1][:-4] + b"\n" + b"".join(rows[2:]), "is damaged in 1 line"), (rows[0] + b"x" * 100000 + b"\n", "is damaged in 1 line"),
                             (rows[0] + rows[1].replace(b"own", b"library 12"), "is damaged in 1 line")):
            with open(tune, "wb") as file:
                file.write(damage)
            done = self.ftrun(self.artifact, "--steps", 5, "--log-jsonl", self.path("d.jsonl"), "--set", "train.log.every=1", **self.library(FT_FAKE_BLAS_SLOW=1))
            self.assertEqual(done.stderr.count("note: "), 1, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertEqual([line["loss"] for line in support.read_jsonl(self.path("d.jsonl"))][-len(truth):], [line["loss"] for line in truth])
            with open(tune, "rb") as file:
                self.assertEqual(sorted(file.read().splitlines()), sorted(whole.splitlines()))
            os.unlink(self.path("d.jsonl"))

    def calls(self, artifact):
        """The library's calls that the plan offers for a training step: attributes as numbers."""
        with open(artifact) as file:
            text = file.read().split('//@ft graph "eval"')[0]
        return [{key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)} for line in re.findall(r"//@ft +(?:instead|also) .*", text)]

    def offered(self, artifact, **wanted):
        return [call for call in self.calls(artifact) if all(call[key] == value for key, value in wanted.items())]

    def follows(self, artifact, tolerance, *flags):
        """With every call the library can do, and again with the timed choice: the losses of our own kernels."""
        own, called = self.path("own.safetensors"), self.path("called.safetensors")
        truth = self.losses("--steps", 12, "--save", own, *flags, artifact=artifact, device="sim")
        for choice, seed in (("library", 3), ("library", 6), ("", 5)):
            got = self.losses("--steps", 12, *flags, artifact=artifact, **{**self.library(SEED=seed), "FT_CUBLASLT": choice})
            self.assertGreater(self.report()["library_call"], 0)
            self.assertEqual(self.report()["left"], 0)
            for a, b in zip(got, truth, strict=True):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=tolerance * b["loss"])
        got = self.losses("--steps", 12, "--save", called, *flags, artifact=artifact, device="sim", FT_CUBLASLT="library")  # on the host's BLAS
        with open(own, "rb") as one, open(called, "rb") as other:
            self.assertNotEqual(one.read(), other.read())  # it adds in another order; the losses of so small a model may be the same
        for a, b in zip(got, truth, strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=tolerance * b["loss"])

    EPILOGUES = """model M(image: u8[B, 4, 4], label: i32[B]) {
  x = flatten(f32(image) / 255, from=1)
  x = gelu(Linear(32, name="fc1")(x), approximate="tanh")
  x = relu(Linear(24, name="fc2")(x))
  x = gelu(Linear(24, name="fc3")(x))
  loss = mean(cross_entropy(Linear(4, name="fc4")(x), label))
}
data D { train = idx("train-x.gz", "train-y") }
train { model = M; data = D; batch = 16; epochs = 2; seed = 3; optimizer = sgd(lr=0.3); precision = f32 }
"""

    def test_every_epilogue(self):
        artifact = self.compile(self.EPILOGUES, name="epilogues.ptx")
        self.assertEqual(len(self.offered(artifact, n=32, act=2, aux=1, bias=1)), 1)  # gelu, what went into it kept
        self.assertEqual(len(self.offered(artifact, act=1, aux=1, bias=1)), 1)  # relu, its bits kept
        self.assertEqual(len(self.offered(artifact, act=3, aux=1, sums=1)), 1)  # their gradients, with the biases'
        self.assertEqual(len(self.offered(artifact, act=4, aux=1, sums=1)), 1)
        self.assertEqual(len(self.offered(artifact, act=0, sums=1)), 1)  # the last bias's gradient beside its weight's
        self.assertEqual(len(self.offered(artifact, act=2)), 1)  # the exact gelu is another function
        self.follows(artifact, 1e-5)

    def test_compute_types(self):
        for precision, compute, tolerance in support.of_this_turn((("tf32", 1, 2e-3), ("bf16", 2, 2e-2), ("fp16", 3, 2e-2)), 3):
            artifact = self.compile(self.EPILOGUES, "--set", f"train.precision={precision}", name=f"{precision}.ptx")
            self.assertGreater(len(self.offered(artifact, compute=compute)), 4)
            self.assertEqual(len(self.offered(artifact, n=32, act=2, aux=1, bias=1)), 1)  # types that the library takes together
            self.follows(artifact, tolerance)

    def test_biases_gradients_of_narrow_types(self):
        """They are f32, so they are made beside their weights': a call with the activation's gradient, and one more."""
        artifact = self.compile(self.EPILOGUES, "--set", "train.precision=bf16", name="narrow.ptx")
        for act in (3, 4):
            self.assertEqual(len(self.offered(artifact, act=act, aux=1, sums=0)), 1)
        self.assertEqual(len(self.offered(artifact, act=0, sums=1, ta=1)), 3)  # of fc1, fc2 and fc4; fc3's exact gelu is no call
        with open(artifact) as file:
            self.assertEqual(len(re.findall(r"//@ft +also ", file.read())), 2)
        self.follows(artifact, 2e-2)
        truth = self.losses("--steps", 12, artifact=artifact, device="sim")
        for bits in (512, 64 + 2):  # sums of an operand; gradients of gelu, and relu, whose gradient then has no bits
            got = self.losses("--steps", 12, artifact=artifact, **{**self.library(FT_FAKE_BLAS_REFUSE=bits), "FT_CUBLASLT": "library"})
            self.assertGreater(self.report()["library_call"], 0)
            for a, b in zip(got, truth, strict=True):
                self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-2 * b["loss"])

    def test_sums_onto_what_is_there(self):
        """A weight used twice: the second product is added to the first."""
        artifact = self.compile(self.EPILOGUES.replace('  x = gelu(Linear(24, name="fc3")(x))', "  same = Linear(24)\n  x = tanh(same(tanh(same(x))))"), name="twice.ptx")
        self.assertGreater(len(self.offered(artifact, accumulate=1)), 0)
        self.follows(artifact, 1e-5)
        parts = self.compile(self.EPILOGUES, "--set", "train.accumulate=2", name="parts.ptx")  # a batch's gradients, part by part
        self.assertGreater(len(self.offered(parts, accumulate=1)), 0)
        self.follows(parts, 1e-5)

    def test_a_proposal_that_fails_is_passed_over(self):
        self.losses("--steps", 5, **self.library(FT_FAKE_BLAS_BAD=1))
        self.assertEqual(self.report()["left"], 0)

    def test_deterministic_uses_no_library(self):
        truth = self.losses("--steps", 10, device="sim")
        got = self.losses("--steps", 10, "--deterministic", **self.library())
        self.assertEqual(got, truth)
        self.assertEqual(self.report()["library_call"], 0)

    def test_an_old_library_is_left_alone(self):
        done = self.ftrun(self.artifact, "--steps", 3, **self.library(FT_FAKE_BLAS_VERSION=110300))
        self.assertIn("without cuBLASLt: the one found is older than 11.6", done.stdout)


class Faults(CudaCase):
    def test_no_driver(self):
        done = self.refused(1, "libcuda.so.1 is not found", FT_CUDA_LIBRARY="") if not os.path.exists("/dev/nvidia0") else None
        if done:
            self.assertIn("--device sim", done.stderr)
            self.assertIn("-o model.so", done.stderr)
        self.refused(1, "cannot be opened", FT_CUDA_LIBRARY="/nowhere/libcuda.so")

    def test_drivers_that_will_not_do(self):
        self.refused(1, "is for CUDA 10.2, too old: ftrun needs 11.4", VERSION=10020)
        self.refused(1, "lacks cuGraphInstantiateWithFlags", FT_CUDA_LIBRARY=os.path.join(FAKE, "libfake_cuda_old.so"))
        self.refused(1, "finds no GPU", COUNT=0)
        self.refused(1, "sm_75, too old", CC=75)

    def test_no_such_gpu(self):
        done = support.run("ftrun", self.artifact, "--device", "cuda:4", check=False, cwd=self.folder, env=self.environment(COUNT=2))
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no cuda:4", done.stderr)

    def test_the_driver_cannot_compile(self):
        done = self.refused(1, "ptxas error", JIT="line 7; fatal   : Unknown opcode")
        self.assertIn("line 7; fatal   : Unknown opcode", done.stderr)

    def test_a_driver_too_old_for_the_ptx(self):
        with open(self.artifact) as file:
            text = file.read()
        with open(self.artifact, "w") as file:
            file.write(re.sub(r"\n\.version \S+", "\n.version 8.3", text))
        done = self.refused(1, "the driver, for CUDA 12.0, is too old for the PTX version of this file", VERSION=12000)
        self.assertIn("update the driver", done.stderr)
        self.ftrun(self.artifact, "--steps", 2, VERSION=12030)

    def test_blocks_of_much_shared_memory(self):
        """More than 48 KiB is asked for at the driver, and refused by a sentence where there is less."""
        source = """model Wide(image: u8[B, 4, 4], label: i32[B]) {
  x = relu(Linear(320, name="fc1")(flatten(f32(image) / 255, from=1)))
  loss = mean(cross_entropy(Linear(4, name="fc3")(relu(Linear(320, name="fc2")(x))), label))
}
data D { train = idx("train-x.gz", "train-y") }
train { model = Wide; data = D; batch = 128; epochs = 1; seed = 3; optimizer = sgd(lr=0.1); precision = bf16 }
"""
        artifact = self.compile(source, name="wide.ptx")
        with open(artifact) as file:
            most = max(int(bytes_) for bytes_ in re.findall(r"//@ft +launch .* shared=(\d+)", file.read()))
        self.assertGreater(most, 48 << 10)
        self.assertEqual(self.losses("--steps", 2, artifact=artifact), self.losses("--steps", 2, artifact=artifact, device="sim"))
        done = self.ftrun(artifact, "--steps", 2, check=False, SHARED=most - 1)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, rf"needs {most} bytes of shared memory for a block and cuda:0 .* has {most - 1}; .*--gpu sm_90")

    def test_tensor_maps(self):
        """Products of wgmma by tensor maps: as on the processor, in captured graphs of several steps, by as many blocks as
        the GPU has processors (two; in whole clusters); refused by a sentence where the driver has no maps, and left out where ftc is told to.
        A product of 1536 x 1536 has about as few tiles as blocks stay for."""
        numpy.save(self.path("x.npy"), numpy.random.default_rng(3).standard_normal((3072, 128), dtype="f4"))
        numpy.save(self.path("y.npy"), numpy.arange(3072, dtype="i4") % 8)
        model = """model Wide(x: f32[B, 128], y: i32[B]) {
  x = relu(Linear(1536, name="one")(x))
  loss = mean(cross_entropy(Linear(8, name="fc")(x), y))
}
data D { train = npy("x.npy", "y.npy") }
train { model = Wide; data = D; batch = 1536; epochs = 1; seed = 3; optimizer = sgd(lr=0.1); precision = bf16 }
"""
        artifact = self.compile(model, "--gpu", "sm_90a", name="maps.ptx")
        with open(artifact) as file:
            self.assertRegex(file.read(), r"(?s)launch .* stays=1 cluster=2 early map 0\+0 bf16 dims=.*cp\.async\.bulk\.tensor.*multicast::cluster")
        truth = self.losses(artifact=artifact, device="sim")
        processor = self.losses(artifact=self.compile(model, name="maps.so"), device="cpu")
        numpy.testing.assert_allclose([line["loss"] for line in truth], [line["loss"] for line in processor], rtol=1e-3)
        self.assertEqual(self.losses(artifact=artifact, SEED=6, FT_KEEP_DATA=1), truth)
        for processors in (3,):  # a cluster has two blocks all the same
            self.assertEqual(self.losses(artifact=artifact, PROCESSORS=processors), truth)
        done = self.ftrun(artifact, check=False, FT_CUDA_LIBRARY=os.path.join(FAKE, "libfake_cuda_11.so"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "wants tensor maps, and the NVIDIA driver here .* has none: .*--disable=tma")
        with open(self.compile(model, "--gpu", "sm_90a", "--disable=tma", name="plain.ptx")) as file:
            self.assertNotIn("cp.async.bulk.tensor", file.read())

    def test_memory_is_known_before_the_run(self):
        done = self.refused(3, "MiB on the GPU", MEMORY=4096)
        self.assertRegex(done.stderr, r"tiny.ptx needs [0-9.]+ MiB on the GPU and 0.0 MiB are free \(of 0.0 MiB\): .*train.batch")
        self.assertNotIn("step 1", done.stdout)

    def test_data_that_does_not_fit_is_sent_by_batches(self):
        truth = self.losses("--epochs", 1, FT_KEEP_DATA=0)
        got = self.losses("--epochs", 1, FT_KEEP_DATA=1, MEMORY=self.report()["peak"] + 4096 + (64 << 20))
        self.assertEqual(got, truth)
        self.assertEqual(self.report()["memory_alloc"], 2)  # the model, and only the smaller split to validate

    def test_a_lost_gpu_leaves_the_checkpoint(self):
        folder = ["--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=10", "--set", f"train.checkpoint.dir={self.path('c')}"]
        truth = self.losses("--steps", 40)
        kernels = self.report()["kernel"] // 40
        for keep in (0, 1):
            done = self.refused(3, "CUDA_ERROR_LAUNCH_FAILED", "--steps", 40, *folder, LOST_AFTER=kernels * 25, FT_KEEP_DATA=keep)
            step = int(re.search(r"the checkpoint of step (10|20) is whole", done.stderr).group(1))  # 20 may be on its way from the GPU
            self.assertIn("--resume", done.stderr)
            self.assertIn(f"step-{step:08}.safetensors", os.listdir(self.path("c")))
            rest = self.losses("--steps", 40, "--resume", self.path("c"), FT_KEEP_DATA=keep)
            rest = [line["loss"] for line in rest if "eval" not in line][step - 40:]
            self.assertEqual(rest, [line["loss"] for line in truth if "eval" not in line][step:])
            subprocess.run(["rm", "-r", self.path("c"), self.path("log.jsonl")], check=True)

    def test_a_gpu_lost_at_once(self):
        self.refused(3, "CUDA_ERROR_LAUNCH_FAILED", "--steps", 5, LOST_AFTER=1)


class Source(CudaCase):
    def target(self, *flags, **fake):
        said = support.run("ftrun", "info", os.path.join(INPUTS, "tiny.ft"), cwd=self.folder, env=self.environment(**fake)).stdout
        return re.search(r"^target +(.*)$", said, re.M).group(1)

    def test_a_model_file_is_compiled_for_the_gpu_here(self):
        self.assertEqual(self.target(CC=90), "ptx, sm_90a")
        self.assertEqual(self.target(CC=80), "ptx, sm_80")
        self.assertEqual(self.target(CC=89), "ptx, sm_89")
        self.assertEqual(self.target(CC=89, VERSION=12030), "ptx, sm_80")  # a driver before PTX 8.4
        self.assertEqual(self.target(CC=120), "ptx, sm_80")
        self.assertEqual(self.target(CC=90, VERSION=11080), "ptx, sm_80")  # a driver before PTX 8.0
        for fake in ({"CC": 75}, {"COUNT": 0}, {"FT_CUDA_LIBRARY": "/nowhere"}):
            self.assertRegex(self.target(**fake), "^cpu, ")

    def test_it_trains_there(self):
        source = os.path.join(INPUTS, "tiny.ft")
        for device, text in (("auto", "cuda:0 (Fake GPU, sm_90)"), ("cuda:0", "cuda:0 (Fake GPU, sm_90)"), ("sim", "sim of sm_80"), ("cpu", "cpu")):
            done = self.ftrun(source, "--steps", 2, device=device)
            self.assertIn(f"on {text}", done.stdout + done.stderr)


class Tools(CudaCase):
    def test_devices(self):
        said = support.run("ftrun", "devices", env=self.environment(COUNT=2, CC=90)).stdout
        self.assertIn("cuda:0: Fake GPU, sm_90, 2 processors, 1.0 GiB", said)
        self.assertIn("cuda:1: Fake GPU", said)
        self.assertRegex(said, r"between GPUs:  cuda:0   cuda:1 *\n      cuda:0   -        host *\n      cuda:1   host     - *\n")
        said = support.run("ftrun", "devices", env=self.environment(COUNT=3, LINKS="-NPN--P--", FT_NCCL_LIBRARY=os.path.join(FAKE, "libfake_nccl.so"))).stdout
        self.assertRegex(said, r"\n      cuda:0   -        NVLink   PCIe *\n      cuda:1   NVLink   -        host *\n      cuda:2   PCIe     host     - *\n")
        self.assertIn("NCCL: 2.27.3\n", said)
        self.assertIn("NCCL: none, FT_NCCL_LIBRARY=/nowhere cannot be opened",
                      support.run("ftrun", "devices", env=self.environment(COUNT=2, FT_NCCL_LIBRARY="/nowhere")).stdout)
        for bus in glob.glob("/sys/bus/pci/devices/*/numa_node")[:1]:
            with open(bus) as file:
                node = int(file.read())
            said = support.run("ftrun", "devices", env=self.environment(BUS=bus.split("/")[5].upper())).stdout
            self.assertRegex(said, f"GiB, NUMA node {node}; runs" if node >= 0 else "GiB; runs")
        for version, words in ((None, "cuBLASLt: 12.4\n"), (110300, "cuBLASLt: 11.3, too old: products are ft's own")):
            old = {} if version is None else {"FT_FAKE_BLAS_VERSION": version}
            self.assertIn(words, support.run("ftrun", "devices", env=self.environment(FT_CUBLASLT_LIBRARY=BLAS, **old)).stdout)
        self.assertIn("cuBLASLt: not found", support.run("ftrun", "devices", env=self.environment(FT_CUBLASLT_LIBRARY="/nowhere")).stdout)
        # Python's packages bring it along
        place = self.path("venv", "lib", "python3.12", "site-packages", "nvidia", "cu13", "lib")
        os.makedirs(place)
        os.symlink(BLAS, os.path.join(place, "libcublasLt.so.13"))
        self.assertIn("cuBLASLt: 12.4\n", support.run("ftrun", "devices", env={**self.environment(FT_CUBLASLT_LIBRARY=""), "VIRTUAL_ENV": self.path("venv")}).stdout)
        said = support.run("ftrun", "devices", env=self.environment(FT_CUDA_LIBRARY="/nowhere")).stdout
        self.assertIn("cuda: none, FT_CUDA_LIBRARY=/nowhere cannot be opened", said)

    def test_bench(self):
        done = support.run("ftrun", "bench", self.artifact, "--per-kernel", "--steps", 8, "--device", "cuda", cwd=self.folder, env=self.environment(MEMORY=64 << 20)).stdout
        self.assertRegex(done, r"copy [0-9.]+ GB/s, f32 peak 0\.5 TFLOP/s, tf32 4\.1, bf16 and f16 8\.2 \(")
        self.assertRegex(done, r"us +share +sum +GFLOP/s of peak +GB/s of copy +line")
        self.assertRegex(done, r"%.*%.*%.*%.*\(k[0-9]+_")
        self.assertEqual(self.report()["left"], 0)

    def test_bench_holds_products_against_tensor_cores(self):
        source = os.path.join(INPUTS, "tiny.ft")
        for precision, peak in (("f32", 0.512), ("tf32", 4.096), ("bf16", 8.192)):
            artifact = self.compile(source, "--set", f"train.precision={precision}", "--disable=join_launches", name="p.ptx")
            few = self.environment(MEMORY=64 << 20, CLOCK=100)  # a ten thousandth
            done = support.run("ftrun", "bench", artifact, "--per-kernel", "--steps", 1, "--device", "cuda", cwd=self.folder, env=few).stdout
            with open(artifact) as file:
                flops = dict(re.findall(r'^//@ft +launch "(\w*dot\w*)" .* flops=(\d+)', file.read(), re.M))
            rows = re.findall(r"^ *([0-9.]+) +[0-9.]+% +[0-9.]+% +[0-9.]+ +([0-9.]+)% .*\((k\d+_\w*dot\w*)", done, re.M)
            rows = [row for row in rows if row[2] in flops]  # a second launch, of sums, has none
            self.assertGreater(len(rows), 3, done)
            for microseconds, share, kernel in rows:
                want = 100 * int(flops[kernel]) / float(microseconds) * 1e6 / (peak * 1e8)
                self.assertAlmostEqual(float(share), want, delta=0.01 * want + 0.06, msg=kernel)


if __name__ == "__main__":
    support.main()
