"""A machine that fails: data that becomes shorter while it is read, pipes where files belong, disks that are full. A
sentence, the right exit code, and nothing that was there before is lost."""
import glob
import os
import resource
import subprocess
import sys
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(image: u8[B, 28, 28], label: i32[B]) {
  logits = Linear(3, name="fc")(flatten(f32(image) / 255, from=1))
  loss = mean(cross_entropy(logits, label))
  metric accuracy = mean(argmax(logits, axis=-1) == label)
  output logits
}
data D { train = %s; valid = npy("v.npy", "w.npy"); workers = %d }
train { model = M; data = D; batch = 16; epochs = 1000; seed = 3; optimizer = sgd(lr=0.01)
  checkpoint { dir="runs"; every=100 steps }
  log { every = 50 }
  eval every 0 epochs }
"""
LETTERS = """
model M(a: i32[B, T=8], b: i32[B, T]) {
  param w: [256, 256] = normal(0.1)
  logits = embed(w, a)
  loss = mean(cross_entropy(logits, b))
  output logits
}
data D { train = %s }
train { model = M; data = D; batch = 16; epochs = 1000; seed = 3; optimizer = sgd(lr=0.01)
  checkpoint { dir="runs"; every=100 steps }
  log { every = 50 } }
"""


class Unlucky(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(0)
        for x, y, count in (("x.npy", "y.npy", 600), ("v.npy", "w.npy", 40)):
            numpy.save(self.path(x), random.randint(0, 256, (count, 28, 28)).astype(numpy.uint8))
            numpy.save(self.path(y), random.randint(0, 3, count).astype(numpy.int32))
        with open(self.path("text"), "wb") as file:
            file.write(bytes(random.randint(0, 256, 60000).astype(numpy.uint8)))

    def run_while(self, change, *flags):
        """Trains, and calls change() when a checkpoint is there. Returns the exit code and what was said."""
        command = [os.path.join(support.BUILD, "bin", "ftrun"), self.artifact, *flags]
        running = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while running.poll() is None and not glob.glob(self.path("runs", "step-*.safetensors")):
            time.sleep(0.01)
        change()
        out, err = running.communicate(timeout=60)
        return running.returncode, out + err

    def shrinks(self, name, *flags):
        code, said = self.run_while(lambda: os.truncate(self.path(name), 5000), *flags)
        self.assertEqual(code, 3, said)
        self.assertIn(name, said)
        self.assertIn("shorter", said)
        self.assertIn("--resume runs", said)
        newest = sorted(glob.glob(self.path("runs", "step-*.safetensors")))[-1]
        self.assertIn("fc.weight" if "fc" in self.text else "w", support.read_safetensors(newest))

    def test_data_shrinks(self):
        for workers in (0, 2):
            self.text = MODEL % ('npy("x.npy", "y.npy")', workers)
            self.artifact = self.compile(self.text)
            for flags in ([], ["--threads", "1"]):
                self.shrinks("x.npy", *flags)
                self.setUp()
                self.artifact = self.compile(self.text)

    def test_text_shrinks(self):
        self.text = LETTERS % 'bytes("text")'
        self.artifact = self.compile(self.text)
        self.shrinks("text")

    def test_pipes(self):
        """A pipe that nobody writes to, wherever a file belongs."""
        self.artifact = self.compile(MODEL % ('npy("x.npy", "y.npy")', 0))
        os.makedirs(self.path("gpt2"))
        for name in ("pipe", "pipe.so", "pipe.ptx", "pipe.ft", "pipe.ftir", "gpt2/vocab.json", "gpt2/merges.txt"):
            os.mkfifo(self.path(name))
        with open(self.path("importer.ft"), "w") as file:
            file.write('import "pipe.ft"\n' + MODEL % ('npy("x.npy", "y.npy")', 0))
        here = dict(cwd=self.folder, timeout=20)
        for arguments in (["ftrun", "pipe.so"], ["ftrun", "pipe.ptx"], ["ftrun", "pipe.ft"], ["ftrun", "info", "pipe.ptx"],
                          ["ftc", "pipe.ft", "-o", "a.so"], ["ftc", "importer.ft", "-o", "a.so"], ["ftopt", "pipe.ftir"],
                          ["ftrun", self.artifact, "--init", "pipe"], ["ftrun", self.artifact, "--resume", "pipe"],
                          ["ftrun", "eval", self.artifact, "--weights", "pipe"],
                          ["ftrun", "tokenize", "text", "--tokenizer", "gpt2", "--output", "t.bin"]):
            done = self.fails(1, "pipe" if "tokenize" not in arguments else "vocab.json", *arguments, **here)
            self.assertRegex(done.stderr, "regular file|a pipe or device")
        for name in ("x.npy", "y.npy"):
            os.rename(self.path(name), self.path("aside"))
            os.mkfifo(self.path(name))
            self.fails(1, f"{name} is a pipe or device", "ftrun", self.artifact, **here)
            os.remove(self.path(name))
            os.rename(self.path("aside"), self.path(name))
        # what the shell has opened is read: ftc <(generate)
        with open(self.path("model.ft"), "rb") as file:
            text = file.read()
        reader, writer = os.pipe()
        os.write(writer, text)
        os.close(writer)
        done = subprocess.run([os.path.join(support.BUILD, "bin", "ftc"), f"/dev/fd/{reader}", "--emit=ir"], pass_fds=[reader], capture_output=True, timeout=20)
        os.close(reader)
        self.assertEqual(done.returncode, 0, done.stderr)

    def fills(self, *arguments, stdin=None):
        """On a full disk the same command ends with 3 and a sentence."""
        command = [os.path.join(support.BUILD, "bin", arguments[0]), *map(str, arguments[1:])]
        good = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=60)
        self.assertEqual(good.returncode, 0, good.stderr)
        self.assertTrue(good.stdout, command)
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, (command, done.stderr))
        self.assertIn("cannot write all of the standard output", done.stderr)

    def test_console(self):
        self.artifact = self.compile(MODEL % ('npy("x.npy", "y.npy")', 0))
        steps, weights = ["--set", "train.checkpoint.dir=", "--steps", 20], ["--weights", "w.safetensors"]
        support.run("ftrun", self.artifact, *steps, "--save", "w.safetensors", cwd=self.folder)
        support.run("ftc", "model.ft", "--emit=ir", "-o", "m.ftir", cwd=self.folder)
        for command in (["ftrun", "model.so", *steps], ["ftrun", "model.so", *steps, "--dry-run"], ["ftrun", "eval", "model.so", *weights],
                        ["ftrun", "predict", "model.so", *weights, "--input", "image=x.npy", "--output", "y"],
                        ["ftrun", "bench", "model.so", "--steps", 3], ["ftrun", "info", "model.so"], ["ftrun", "devices"], ["ftrun", "--help"],
                        ["ftopt", "m.ftir"], ["ftopt", "m.ftir", "--interp"], ["ftopt", "m.ftir", "--dot"], ["ftopt", "--list-passes"], ["ftopt", "--help"],
                        ["ftc", "--help"], ["ftc", "--version"], ["ftc", "--list-ops"],
                        *(["ftc", "model.ft", flag] for flag in ("--summary", "--memory", "--memory=svg")),
                        *(["ftc", "model.ft", f"--emit={kind}"] for kind in ("ast", "ir", "dot", "plan", "html", "asm", "ptx"))):
            self.fills(*command)
        # the training itself is not lost with its console
        os.remove(self.path("w.safetensors"))
        with open("/dev/full", "w") as full:
            subprocess.run([os.path.join(support.BUILD, "bin", "ftrun"), self.artifact, *map(str, steps), "--save", "w.safetensors"], cwd=self.folder, stdout=full, stderr=full)
        support.read_safetensors(self.path("w.safetensors"))

    def test_generate(self):
        artifact = self.compile(LETTERS % 'bytes("text")')
        support.run("ftrun", artifact, "--steps", 1, "--set", "train.checkpoint.dir=", "--save", "w.safetensors", cwd=self.folder)
        for flags in (["--prompt", "a"], ["--prompt", "a", "--samples", 3], ["--prompt-tokens", "1,2"]):
            self.fills("ftrun", "generate", artifact, "--weights", "w.safetensors", "--tokens", 50, *flags)

    def test_closed_descriptors(self):
        """Without a standard output, what is printed must not go into the first file that is opened."""
        self.artifact = self.compile(MODEL % ('npy("x.npy", "y.npy")', 0))
        for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
            command = f"{os.path.join(support.BUILD, 'bin', 'ftrun')} {self.artifact} --steps 20 --log-jsonl log --save w.safetensors --set train.checkpoint.dir= --set train.log.every=1 {closed}"
            self.assertEqual(subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, timeout=60).returncode, 0)
            support.read_safetensors(self.path("w.safetensors"))
            self.assertEqual(len(support.read_jsonl(self.path("log"))), 20)

    def test_files_on_a_full_disk(self):
        """No file may grow beyond 1 KB; what has the name already stays as it is."""
        self.artifact = self.compile(MODEL % ('npy("x.npy", "y.npy")', 0))
        steps = ["--set", "train.checkpoint.dir=", "--steps", "20"]
        support.run("ftrun", self.artifact, *steps, "--save", "w.safetensors", cwd=self.folder)
        support.run("ftc", "model.ft", "--emit=ir", "-o", "m.ftir", cwd=self.folder)
        os.mkdir(self.path("dumps"))
        for output, command in (("a.so", ["ftc", "model.ft", "-o", "a.so"]), ("a.ptx", ["ftc", "model.ft", "-o", "a.ptx"]),
                                ("a.ll", ["ftc", "model.ft", "--emit=llvm", "-o", "a.ll"]), ("a.svg", ["ftc", "model.ft", "--memory=a.svg"]),
                                ("dumps", ["ftc", "model.ft", "-o", "b.so", "--dump=all", "--dump-dir", "dumps"]),
                                ("w.safetensors", ["ftrun", "model.so", *steps, "--save", "w.safetensors"]),
                                ("t.json", ["ftrun", "model.so", *steps, "--trace", "t.json"]),
                                ("log", ["ftrun", "model.so", *steps, "--set", "train.log.every=1", "--log-jsonl", "log"]),
                                ("p.npy", ["ftrun", "predict", "model.so", "--weights", "w.safetensors", "--input", "image=x.npy", "--output", "p.npy"])):
            if not os.path.exists(self.path(output)):
                with open(self.path(output), "w") as file:
                    file.write("old")
            before = open(self.path(output), "rb").read() if os.path.isfile(self.path(output)) else None
            there = set(os.listdir(self.folder))
            command = [os.path.join(support.BUILD, "bin", command[0]), *command[1:]]
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
            self.assertEqual(done.returncode, 3, (command, done.stderr))
            self.assertIn("File too large", done.stderr)
            if output not in ("log", "dumps"):
                self.assertEqual(open(self.path(output), "rb").read(), before, command)
            self.assertEqual(set(os.listdir(self.folder)), there, command)


if __name__ == "__main__":
    support.main()
