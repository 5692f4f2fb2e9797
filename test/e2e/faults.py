"""Every allocation, mapping, opening, reading, writing, sync, rename, folder, process and thread of ftc and ftrun fails in
turn (test/fault/shim.c): the tool ends with a sentence and the right exit code, never by a signal, and what was there
before is still there: the output before, the weights before, a checkpoint to go on from. As SQLite tests itself.
By default a sample of the calls, chosen by their numbers; FT_SOAK=1 takes all of them, and failures that last."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

SOAK = bool(os.environ.get("FT_SOAK"))
KINDS = ("malloc", "mmap", "open", "mkdir", "read", "write", "fsync", "rename", "fork", "thread")
MODEL = """
model M(image: u8[B, 4, 4], label: i32[B]) {
  x = flatten(f32(image) / 255, from=1)
  logits = Linear(3, name="fc")(relu(Linear(8, name="hidden")(x)))
  loss = mean(cross_entropy(logits, label))
  metric accuracy = mean(argmax(logits, axis=-1) == label)
  output logits
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy"); workers = 2 }
train { model = M; data = D; batch = 8; epochs = 2; optimizer = adam(lr=0.01); seed = 1
  checkpoint { dir="runs"; every=3 steps; keep=3; best=max(valid.accuracy) }
  log { every = 2; jsonl="log" } }
"""


def build_shim(folder):
    shim = os.path.join(folder, "shim.so")
    source = os.path.join(support.ROOT, "test", "fault", "shim.c")
    subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", shim, source], check=True)
    return shim


class Faults(support.Case):
    @classmethod
    def setUpClass(cls):
        """A folder with all that a run needs, copied for each run."""
        cls.temporary = tempfile.TemporaryDirectory(prefix="ft-faults-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.home = os.path.join(cls.temporary.name, "home")
        os.mkdir(cls.home)
        cls.shim = build_shim(cls.temporary.name)
        random = numpy.random.RandomState(0)
        numpy.save(os.path.join(cls.home, "x.npy"), random.randint(0, 256, (40, 4, 4)).astype(numpy.uint8))
        numpy.save(os.path.join(cls.home, "y.npy"), random.randint(0, 3, 40).astype(numpy.int32))
        with open(os.path.join(cls.home, "m.ft"), "w") as file:
            file.write(MODEL)
        for output in ("m.so", "m.ptx"):
            support.run("ftc", "m.ft", "-o", output, cwd=cls.home)
        support.run("ftc", "m.ft", "--emit=ir", "-o", "m.ftir", cwd=cls.home)
        support.run("ftrun", "m.so", "--steps", 4, "--save", "w.safetensors", cwd=cls.home)
        cls.before = cls.contents(cls.home)

    @staticmethod
    def contents(folder):
        found = {}
        for path in glob.glob(os.path.join(folder, "**"), recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read()
        return found

    def once(self, command, kind, at, lasting=False, callers=None):
        """One run in a fresh copy. Returns what ended, how many calls there were, and the folder's files."""
        work = os.path.join(self.temporary.name, "work")
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.home, work)
        count = os.path.join(self.temporary.name, "count")
        if os.path.exists(count):
            os.remove(count)
        environment = dict(os.environ, LD_PRELOAD=self.shim, FT_FAULT_KIND=kind, FT_FAULT_AT=str(at), FT_FAULT_COUNT=count, TMPDIR=work)
        if lasting:
            environment["FT_FAULT_LASTING"] = "1"
        if callers:
            environment["FT_FAULT_CALLERS"] = callers
        done = subprocess.run([os.path.join(support.BUILD, "bin", command[0]), *command[1:]], cwd=work, env=environment,
                              capture_output=True, text=True, errors="replace", timeout=60)
        calls = 0
        if os.path.exists(count):
            with open(count) as file:
                calls = int(file.read())
        return done, calls, self.contents(work)

    def judge(self, command, done, files, whole):
        """What must hold after a run in which a call failed. Returns what does not."""
        said = done.stdout + done.stderr
        if done.returncode not in (0, 1, 2, 3):
            return f"ended with {done.returncode}"
        for trace in ("Sanitizer", "Segmentation", "Assertion", "LLVM ERROR", "terminate called", "Stack dump", "fault of ft", "internal error"):
            if trace in said:
                return f"says {trace}"
        if done.returncode and not any(word in done.stderr for word in ("error: ", "ftc: ", "ftrun: ", "ftopt: ")):
            return "says nothing"
        if done.returncode in (1, 2):
            return "calls it the user's error"
        left = [name for name in files if name not in whole and ".tmp" in name or name.endswith(".o")]
        # a compiler without memory ends at once; its temporary files have names that nobody else takes
        if left and not (done.returncode == 3 and "error: out of memory" in done.stderr):
            return f"leaves {left}"
        for name, content in self.before.items():
            if name not in files:
                if name.startswith("runs/step") and len([f for f in files if f.startswith("runs/step")]) >= 3:
                    continue
                return f"loses {name}"
            if files[name] != content and files[name] != whole.get(name) and name != "log" and not name.startswith("runs/"):
                return f"spoils {name}"
        if done.returncode == 0:
            for name in whole:
                if name not in files:
                    return f"ends well without {name}"
                if name.endswith(".safetensors") and files[name] != whole[name]:
                    return f"ends well with another {name}"
        for name in files:
            if name.endswith(".safetensors"):
                try:
                    work = os.path.join(self.temporary.name, "work", name)
                    support.read_safetensors(work)
                except Exception as problem:
                    return f"{name} cannot be read: {problem}"
        return None

    def numbers(self, calls, most):
        if SOAK or calls <= most:
            return range(1, calls + 1)
        return sorted({1 + i * (calls - 1) // (most - 1) for i in range(most)})

    def tries(self, command, kinds=KINDS, most=12, callers=None):
        found = []
        for kind in kinds:
            done, calls, whole = self.once(command, kind, 0, callers=callers)
            self.assertEqual(done.returncode, 0, done.stderr)
            for at in self.numbers(calls, most):
                for lasting in (False, True) if SOAK or at % 3 == 1 else (False,):
                    done, _, files = self.once(command, kind, at, lasting, callers)
                    problem = self.judge(command, done, files, whole)
                    if problem:
                        found.append(f"{' '.join(command)}: {kind} {at} of {calls}{' and on' if lasting else ''}: {problem}\n    {done.stderr.strip()[-300:]}")
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_compile(self):
        self.tries(["ftc", "m.ft", "-o", "m.so"], most=5)

    def test_compile_ptx(self):
        self.tries(["ftc", "m.ft", "-o", "m.ptx"], most=4)

    def test_passes(self):
        self.tries(["ftopt", "m.ftir", "--passes=shapes,simplify,autodiff"], most=6)

    def test_train(self):
        self.tries(["ftrun", "m.so", "--save", "w.safetensors", "--steps", "9"])

    def test_resume(self):
        self.tries(["ftrun", "m.so", "--resume", "runs", "--save", "w.safetensors"])

    def test_init_and_trace(self):
        self.tries(["ftrun", "m.so", "--init", "w.safetensors", "--trace", "t.json", "--steps", "2"], most=8)

    def test_sim(self):
        self.tries(["ftrun", "m.ptx", "--device", "sim", "--save", "w.safetensors", "--steps", "1", "--set", "train.eval.every=0", "--set", "train.checkpoint.best="], most=8)

    def test_eval_and_predict(self):
        self.tries(["ftrun", "eval", "m.so", "--weights", "w.safetensors"], most=6)
        self.tries(["ftrun", "predict", "m.so", "--weights", "w.safetensors", "--input", "image=x.npy", "--output", "p.npy"], most=6)

    def test_train_from_source(self):
        self.tries(["ftrun", "m.ft", "--save", "w.safetensors", "--steps", "1"], ("fork", "open", "malloc", "mkdir"), most=3)

    def test_info(self):
        self.tries(["ftrun", "info", "m.so"], most=6)

    def test_inside_llvm(self):
        """Allocations of LLVM and of the C++ library."""
        self.tries(["ftc", "m.ft", "-o", "m.so"], ["malloc"], most=6, callers="c++")


if __name__ == "__main__":
    support.main()
