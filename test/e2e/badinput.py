"""Bad input: one clear line, the right exit code, nothing lost. Each case damages what a good run used."""
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import small
import support

MODEL = small.model()


class BadInput(support.Case):
    def setUp(self):
        super().setUp()
        small.write_data(self.folder)
        self.artifact = self.compile(MODEL)

    def good(self, *flags):
        return support.run("ftrun", self.artifact, "--data", self.folder, *flags)

    def bad(self, needle, *flags, code=1):
        done = self.fails(code, needle, "ftrun", "train", self.artifact, "--data", self.folder, *flags)
        lines = [l for l in done.stderr.splitlines() if "error" in l]
        self.assertGreaterEqual(len(lines), 1, done.stderr)
        return done

    def rewrite(self, name, change):
        with open(self.path(name), "rb") as file:
            data = file.read()
        with open(self.path(name), "wb") as file:
            file.write(change(data))

    def test_the_good_run_works(self):
        self.good()

    def test_missing_data(self):
        os.remove(self.path("x.npy"))
        self.bad("x.npy")

    def test_npy_truncated(self):
        self.rewrite("x.npy", lambda d: d[:-100])
        self.bad("x.npy")

    def test_npy_damaged_header(self):
        self.rewrite("x.npy", lambda d: d[:20] + b"\xff" * 30 + d[50:])
        self.bad("x.npy")

    def test_npy_empty(self):
        self.rewrite("x.npy", lambda d: b"")
        self.bad("x.npy")

    def test_npy_wrong_shape(self):
        numpy.save(self.path("x.npy"), numpy.zeros((40, 5, 4), numpy.uint8))
        self.bad("[5,4]")

    def test_npy_wrong_dtype(self):
        numpy.save(self.path("x.npy"), numpy.zeros((40, 4, 4), numpy.float32))
        self.bad("f32")

    def test_counts_disagree(self):
        numpy.save(self.path("y.npy"), numpy.zeros(39, numpy.int32))
        self.bad("39")

    def test_fewer_samples_than_a_batch(self):
        numpy.save(self.path("x.npy"), numpy.zeros((3, 4, 4), numpy.uint8))
        numpy.save(self.path("y.npy"), numpy.zeros(3, numpy.int32))
        self.bad("batch")

    def test_artifact_truncated(self):
        self.rewrite("model.so", lambda d: d[: len(d) // 2])
        self.bad("model.so")

    def test_artifact_is_something_else(self):
        self.rewrite("model.so", lambda d: b"hello world\n")
        self.bad("model.so")

    def test_artifact_plan_altered(self):
        self.rewrite("model.so", lambda d: d.replace(b"train.batch", b"train.bitch"))
        self.bad("model.so")

    def test_artifact_missing(self):
        self.fails(1, "nowhere.so", "ftrun", self.path("nowhere.so"))

    def test_safetensors(self):
        self.good("--save", self.path("w.safetensors"))
        whole = open(self.path("w.safetensors"), "rb").read()
        for damage in (whole[:-5], whole[:4], b"", b"\xff" * 200, whole.replace(b'"F32"', b'"F99"', 1), whole.replace(b"fc.weight", b"fd.weight", 1)):
            with open(self.path("w.safetensors"), "wb") as file:
                file.write(damage)
            self.bad("w.safetensors", "--init", self.path("w.safetensors"))

    def test_safetensors_wrong_shape(self):
        self.good("--save", self.path("w.safetensors"))
        tensors = support.read_safetensors(self.path("w.safetensors"))
        tensors["fc.weight"] = numpy.zeros((4, 8), numpy.float32)
        support.write_safetensors(self.path("w.safetensors"), tensors)
        self.bad("fc.weight", "--init", self.path("w.safetensors"))

    def test_idx(self):
        text = MODEL.replace('npy("x.npy", "y.npy")', 'idx("x.idx.gz", "y.idx")')
        self.artifact = self.compile(text)
        images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (40, 4, 4)) + bytes(640)
        labels = b"\0\0\x08\x01" + (40).to_bytes(4, "big") + bytes(40)

        def write(x=gzip.compress(images), y=labels):
            with open(self.path("x.idx.gz"), "wb") as file:
                file.write(x)
            with open(self.path("y.idx"), "wb") as file:
                file.write(y)

        write()
        self.good()
        for damaged in (gzip.compress(images)[:-12], gzip.compress(images[:300]), gzip.compress(b"\1" + images[1:]), b"", gzip.compress(images[:4] + b"\xff" * 12 + images[16:])):
            write(x=damaged)
            self.bad("x.idx.gz")
        write(y=labels[:-1])
        self.bad("y.idx")

    def test_settings(self):
        self.bad("train.learning_rate", "--set", "train.learning_rate=1")
        self.bad("train.lr", "--set", "train.lr=fast")
        self.bad("recompile", "--set", "train.batch=4")

    def test_usage(self):
        self.fails(2, "--stepz", "ftrun", self.artifact, "--stepz", "3")
        self.fails(2, "", "ftrun")
        self.fails(2, "", "ftc")
        self.fails(2, "--emiit", "ftc", self.path("model.ft"), "--emiit=ir")

    def test_source_damaged(self):
        for k, text in enumerate((MODEL[:100], MODEL.replace("{", "(", 1), "\0" * 50, "model", '"' * 30, "model M(x: f32[B, 99999999999999999999]) { }", "/*" * 1000)):
            with open(self.path(f"bad{k}.ft"), "w") as file:
                file.write(text)
            self.fails(1, f"bad{k}.ft", "ftc", self.path(f"bad{k}.ft"), "-o", self.path("bad.so"))
            self.assertFalse(os.path.exists(self.path("bad.so")))

    def test_no_disk_space(self):
        mount = self.path("small")
        os.mkdir(mount)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", mount], capture_output=True).returncode != 0:
            self.skipTest("cannot mount a small tmpfs here")
        try:
            with open(os.path.join(mount, "w.safetensors"), "w") as file:
                file.write("old")
            done = self.fails(3, "w.safetensors", "ftrun", self.artifact, "--data", self.folder, "--save", os.path.join(mount, "w.safetensors"), "--steps", "2", cwd=self.folder)
            self.assertRegex(done.stderr, "(?i)space")
            self.assertEqual(open(os.path.join(mount, "w.safetensors")).read(), "old")
            self.assertEqual(os.listdir(mount), ["w.safetensors"])
            self.fails(3, "m.so", "ftc", self.path("model.ft"), "-o", os.path.join(mount, "m.so"))
        finally:
            subprocess.run(["umount", mount], check=True)

    def test_log_cannot_be_written(self):
        self.fails(3, "/dev/full", "ftrun", self.artifact, "--data", self.folder, "--log-jsonl", "/dev/full", "--set", "train.log.every=1")

    def test_interrupt_saves(self):
        text = MODEL.replace("epochs = 2", f'epochs = 100000000; checkpoint {{ dir="runs"; every=1000000 steps }}')
        self.artifact = self.compile(text)
        command = [os.path.join(support.BUILD, "bin", "ftrun"), self.artifact, "--data", self.folder, "--set", "train.eval.every=0", "--save", self.path("w.safetensors")]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        time.sleep(1.5)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=20)
        self.assertEqual(running.returncode, 130, out[-500:] + err)
        support.read_safetensors(self.path("w.safetensors"))
        checkpoints = [f for f in os.listdir(self.path("runs")) if f.endswith(".safetensors")]
        self.assertEqual(len(checkpoints), 1)
        step = int(re.search(r"(\d+)", checkpoints[0]).group(1))
        support.run("ftrun", self.artifact, "--data", self.folder, "--set", "train.eval.every=0", "--resume", self.path("runs"), "--steps", step + 5, cwd=self.folder)


class Exactness(support.Case):
    """What must be bitwise equal."""

    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(0)
        numpy.save(self.path("x.npy"), random.randint(0, 256, (41, 4, 4)).astype(numpy.uint8))
        numpy.save(self.path("y.npy"), random.randint(0, 3, 41).astype(numpy.int32))

    def weights(self, artifact, name, *flags):
        support.run("ftrun", artifact, "--data", self.folder, "--save", self.path(name), *flags)
        return open(self.path(name), "rb").read()

    def test_second_compile(self):
        for flags in ([], ["--set", "train.optimizer=sgd"]):
            first, second = self.compile(MODEL, *flags, name="a.so"), self.compile(MODEL, *flags, name="b.so")
            self.assertEqual(open(first, "rb").read(), open(second, "rb").read())
            first, second = self.compile(MODEL, *flags, name="a.ptx"), self.compile(MODEL, *flags, name="b.ptx")
            self.assertEqual(open(first, "rb").read(), open(second, "rb").read())

    def test_resume_mid_epoch(self):
        text = MODEL.replace("relu(Linear(8", "dropout(relu(Linear(8").replace("(x)))\n", "(x)), 0.3))\n", 1)
        self.assertIn("dropout", text)
        artifact = self.compile(text)
        whole = self.weights(artifact, "whole.safetensors", "--steps", "9", "--epochs", "5")
        runs = ["--set", f"train.checkpoint.dir={self.path('runs')}", "--set", "train.checkpoint.unit=step", "--set", "train.checkpoint.every=7"]
        self.weights(artifact, "part.safetensors", "--steps", "7", "--epochs", "5", *runs)
        resumed = self.weights(artifact, "resumed.safetensors", "--steps", "9", "--epochs", "5", "--resume", self.path("runs"))
        self.assertNotEqual(open(self.path("part.safetensors"), "rb").read(), whole)
        self.assertEqual(resumed, whole)

    def test_threads_and_workers_do_not_matter(self):
        artifact = self.compile(MODEL)
        first = self.weights(artifact, "a.safetensors", "--threads", "1")
        self.assertEqual(first, self.weights(artifact, "b.safetensors", "--threads", "2"))
        self.assertEqual(first, self.weights(artifact, "c.safetensors", "--set", "data.workers=3", "--set", "data.prefetch=7"))
        self.assertNotEqual(first, self.weights(artifact, "d.safetensors", "--set", "train.seed=9"))

    def test_a_reader_that_leaves_and_a_terminal_that_closes(self):
        """What ftrun compiled from a .ft file goes with it, whatever ends it."""
        with open(self.path("model.ft"), "w") as file:
            file.write(MODEL)
        scratch = self.path("scratch")
        os.mkdir(scratch)
        command = [os.path.join(support.BUILD, "bin", "ftrun"), "model.ft", "--steps", "100000000", "--set", "train.log.every=1"]
        for number in (signal.SIGPIPE, signal.SIGHUP):
            running = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, TMPDIR=scratch),
                                       preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # under nohup it is ignored
            self.addCleanup(running.kill)
            while b"loss" not in running.stdout.readline():
                self.assertIsNone(running.poll())
            self.assertEqual(len(os.listdir(scratch)), 1)
            if number == signal.SIGPIPE:
                running.stdout.close()
            else:
                running.send_signal(number)
                running.communicate(timeout=60)
            self.assertEqual(running.wait(60), 128 + number)
            self.assertEqual(os.listdir(scratch), [])
            running.stderr.close()

    def test_evaluation_counts_every_sample_once(self):
        artifact = self.compile(MODEL)
        self.weights(artifact, "w.safetensors")
        x, y = numpy.load(self.path("x.npy")), numpy.load(self.path("y.npy"))
        support.run("ftrun", "predict", artifact, "--weights", self.path("w.safetensors"), "--input", "image=" + self.path("x.npy"), "--output", self.path("p.npy"))
        logits = numpy.load(self.path("p.npy"))
        self.assertEqual(logits.shape, (41, 3))
        w = support.read_safetensors(self.path("w.safetensors"))
        hidden = numpy.maximum(x.reshape(41, -1) / 255 @ w["hidden.weight"].T + w["hidden.bias"], 0)
        expected = hidden @ w["fc.weight"].T + w["fc.bias"]
        numpy.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
        said = support.run("ftrun", "eval", artifact, "--weights", self.path("w.safetensors"), "--data", self.folder, "--log-jsonl", self.path("e.jsonl")).stdout
        line = support.read_jsonl(self.path("e.jsonl"))[-1]
        self.assertAlmostEqual(line["accuracy"], (expected.argmax(1) == y).mean(), places=6)
        log_softmax = expected - expected.max(1, keepdims=True)
        log_softmax -= numpy.log(numpy.exp(log_softmax).sum(1, keepdims=True))
        self.assertAlmostEqual(line["loss"], -log_softmax[numpy.arange(41), y].mean(), places=5)
        self.assertIn("accuracy", said)


if __name__ == "__main__":
    support.main()
