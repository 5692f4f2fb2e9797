"""Every command of README.md and of the pages of reference is run, with a small model in place of the reader's. A command that is new
must run as it stands with the files of setUpClass, or be added to CHANGED, what is another here, or SKIPPED, why it cannot run.
docs/distributed.md has a test of its own (distributed_docs.py), as have docs/embedding.md (embed.py) and the pages of docs.py."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import pages
import support

PAGES = ["README.md", "docs/data.md", "docs/watching.md", "docs/profiling.md", "docs/language.md", "docs/simulate.md", "docs/ir.md", "docs/cuda.md",
         "docs/sim.md", "docs/design.md", "docs/testing.md", "docs/tune.md", "docs/kernels.md", "docs/editors.md"]
MODEL = """
hyper hidden: int = 16
hyper NAME: int = 3
preset "NAME" { hidden = 8 }
model M(x: f32[B, 8], y: i32[B]) {
  logits = Linear(4, name="head")(relu(Linear(hidden, name="fc1")(x)))
  loss = mean(cross_entropy(logits, y))
  metric accuracy = accuracy(logits, y)
  output image = softmax(logits)
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { batch = 8; accumulate = 2; seed = 5; optimizer = adam(lr=0.01); epochs = 40; log { every=20 steps } }
"""
# a pattern of a command: why it is not run
SKIPPED = {
    r"scripts/|build/bin/|bench/": "builds, tests, installs or measures for minutes (scripts/test --list, CI)",
    r"code=": "a line of a job script, which docs/distributed.md's test runs",
    r"ft\w+ .*(gpt2/|gpt2\.so|tokenize TEXT|gpt2\.ft)": "needs OpenAI's vocabulary and weights: test/e2e/tokenizer.py, test/num/gpt2.py",
    r"ftc --lsp$": "waits for an editor: test/e2e/lsp.py",
    r"ftrun --gpus$|ftrun --ranks$|ftrun --elastic$": "docs/distributed.md's test",
    r"ftc --disable=tma": "for a Hopper GPU",
    r"ftc .*--cubin": "needs NVIDIA's ptxas: test/e2e/cubin.py",
    r"ftrun --find-lr MODEL": "the README's, of a .ft file",
    r"ftrun generate MODEL|ftc --set generate.batch=N": "the README's, of a language model",
    r"ftrun --data DIR": "all others find their files here",
    r"ftrun (model|model\.ptx)$|ftrun bench model.ptx( --per-kernel)?$|ftrun model\.ft$": "on a GPU (test/e2e/cuda.py, on a driver that is fake)",
    r"ftrun model\.ptx$": "on a GPU",
}
# what is another here: [(text, other)]; "" is put behind the command
CHANGED = {
    r"ftc -D|ftc --set KEY|ftc --emit=ir$|ftc --memory$|ftc --emit=(plan|steps)$|ftc --preset|ftc --check-memory|ftc --simulate$": [("ftc", "ftc model.ft -o other.so")],
    r"ftc --(exact-math|debug-waits)$": [("ftc", "ftc model.ft -o other.ptx")],
    r"ftc --disable=layout$": [("ftc", "ftc model.ft -o other.so")],
    r"ftc --simulate$": [("--simulate", '--set distributed.data=any --simulate "gpus=2 gpu=cpu"')],
    r"ftc .*pipeline=4": [("pipeline=4", "pipeline=2")],
    r"cat run\.": [("cat", "cp run.pftrace run.rank1.pftrace && cat")],
    r"ftrun (--set|--max-time|--keep-going|--save-ema|--log-jsonl|--resume|--tensorboard|--trace|--allow-commands)[^|]*$": [("ftrun", "ftrun model.so")],
    r".*KEY=VALUE": [("KEY=VALUE", "train.batch=4")],
    r"ftrun --set$": [("", " train.lr=0.1")],
    r"ftrun --save-ema": [("model.so", "averaged.so")],
    r"ftc -D NAME=VALUE": [("VALUE", "4")],
    r"ftc .*-D hidden": [("train.batch=128", "train.batch=4")],
    r"ftc model.ft --auto": [("gpus=64", "gpus=2")],
    r"ftc gpt.ft": [("gpt.ft", "model.ft")],
    r"ftrun COMMAND": [("COMMAND", "train")],
    r"ftrun lottery": [("--rounds 5", "--rounds 1"), ("--rewind 500", "--rewind 2"), ("", " --epochs 1")],
    r"ftrun tune examples/": [("--trials 20 --epochs 2", "--trials 2 --epochs 1")],
    r"ftc model.ft --apply": [("ftc", "cp model.ft applied.ft && ftc"), ("model.ft --apply", "applied.ft --apply")],
    r"ftrun tune model": [("--trials 40", "--trials 2")],
    r"ftrun --find": [("", " --steps 20"), ("--find-batch model.ft --steps 20", "--find-batch model.ft")],
    r"ftc examples/gpt_bytes": [("FOLDER", "text"), ("", " --steps 2 -D T=16 "), (" -D T=16 ", ""), ("gpt_bytes.ft", "gpt_bytes.ft -D T=16 -D L=1")],
    r"ftrun generate gpt.so": [("", " --tokens 20"), ("w.safetensors", "gpt.safetensors")],
    r".*\bFILE\b": [("--json FILE", "--json times.json model.so"), ("--log-jsonl FILE", "--log-jsonl other.jsonl"), ("FILE", "traced")],
    r"ftrun model.ft --init W": [("--init W", "--init w.safetensors")],
    r"ftrun quantised.ft": [("trained.safetensors", "w.safetensors")],
    r"ftrun eval --split": [("eval", "eval model.so --weights w.safetensors")],
    r"ftrun predict MODEL": [("MODEL", "model.so"), (" W ", " w.safetensors "), ("=x.npy", "=image.npy")],
    r"ftrun predict --input": [("--input", "model.so --weights w.safetensors --input"), ("image=x.npy", "x=x.npy --output image.npy")],
    r"ftc examples/gpt_bytes.*": [("--save w.safetensors", "--save gpt.safetensors")],
    r"ftopt": [("dot -Tsvg", "grep -q digraph")],
    r"ftopt --interp": [("", " x.ftir")],
    r"ftrun model.ptx --device sim$": [("", " --steps 2")],
    r"ftrun bench model.ptx --device sim": [("", " --steps 1")],
}
UNTIL_CTRL_C = ("ftrun watch --http",)
NAMES = re.compile(r"ftrun (\w+)$")  # the name of a subcommand, not a command


class Reference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="ft-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = temporary.name
        cls.environment = dict(os.environ, PATH=os.path.join(support.BUILD, "bin") + ":" + os.environ["PATH"], NO_COLOR="1")
        numbers = numpy.random.default_rng(0)
        numpy.save(cls.path("x.npy"), numbers.standard_normal((64, 8)).astype("f4"))
        numpy.save(cls.path("y.npy"), numbers.integers(0, 4, 64).astype("i4"))
        os.symlink(support.EXAMPLES, cls.path("examples"))
        os.mkdir(cls.path("text"))
        for name, text in (("model.ft", MODEL), ("averaged.ft", MODEL.replace("seed", "ema = 0.9; seed")), ("quantised.ft", MODEL.replace("Linear", "QuantLinear")),
                           ("text/train.txt", "The cat sat. " * 200), ("text/valid.txt", "The cat sat. " * 20)):
            with open(cls.path(name), "w") as file:
                file.write(text)
        cls.run_all("ftc model.ft -o model.so", "ftc averaged.ft -o averaged.so", "ftc model.ft -o model.ptx", "ftc model.ft --emit=ir -o x.ftir",
                    "ftrun model.so --save w.safetensors --log-jsonl runs/a.jsonl --set train.checkpoint.dir=runs/a", "ftrun bench model.so --json bench.json",
                    "ftc model.ft --set distributed.data=any -o any.so", "ftrun bench any.so --json kernels.json", "cp -r runs/a runs/x", "cp runs/a.jsonl runs/b.jsonl", "cp runs/a.jsonl .",
                    "cp runs/a.jsonl b.jsonl", "cp runs/a.jsonl run.jsonl")

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def run_all(cls, *commands):
        os.makedirs(cls.path("runs"), exist_ok=True)
        for command in commands:
            done = subprocess.run(["bash", "-c", command], cwd=cls.folder, env=cls.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=300)
            if done.returncode != 0:
                raise AssertionError(f"{command}\nexit {done.returncode}\n{done.stdout[-2000:]}")

    def until_ctrl_c(self, command):
        with subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:  # a script's background jobs ignore it
            self.assertRegex(process.stdout.readline(), r"http://127.0.0.1:\d+/ shows \d runs? until Ctrl-C")
            process.send_signal(signal.SIGINT)
            process.wait(60)

    def run_command(self, command):
        changes = [change for pattern, changes in CHANGED.items() if re.match(pattern, command) for change in changes]
        for old, new in changes:
            command = command.replace(old, new) if old else command + new
        if command.startswith(UNTIL_CTRL_C):
            return self.until_ctrl_c(command)
        self.run_all(command)

    def test_commands(self):
        known, done = subprocess.run([os.path.join(support.BUILD, "bin", "ftrun"), "--help"], capture_output=True, text=True).stdout, set()
        for page in PAGES:
            with open(os.path.join(support.ROOT, page)) as file:
                commands = pages.reference_commands(file.read())
            for command in commands:
                if command in done or any(re.match(pattern, command) for pattern in SKIPPED):
                    continue
                done.add(command)
                with self.subTest(page=page, command=command):
                    if NAMES.fullmatch(command) and command.split()[1] not in ("devices",):
                        self.assertRegex(known, rf"ftrun {command.split()[1]} ")
                    else:
                        self.run_command(command)
        self.assertGreater(len(done), 50)


if __name__ == "__main__":
    support.main()
