"""Every allocation, mapping, opening, reading, writing, sync, rename, folder, process and thread of ftc and ftrun fails in
turn (test/fault/shim.c): the tool ends with a sentence and the right exit code, never by a signal, and what was there
before is still there: the output before, the weights before, a checkpoint to go on from. As SQLite tests itself.
By default a sample of the calls, chosen by their numbers; FT_SOAK=1 takes all of them, and failures that last."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import embed
import small
import support
import tokenizer

SOAK = bool(os.environ.get("FT_SOAK"))
KINDS = ("malloc", "mmap", "open", "mkdir", "read", "write", "fsync", "rename", "fork", "thread")
RECIPE = """seed = 1
  checkpoint { dir="runs"; every=3 steps; keep=3; best=max(valid.accuracy) }
  log { every = 2; jsonl="log" }"""
TEXT = """
model T(text: i32[B, T=8], next: i32[B, T]) {
  x = Embedding(256, 8, name="e")(text)
  q, k, v = split(rearrange(Linear(24, name="qkv")(x), "b t (h d) -> b h t d", h=2), 3, axis=-1)
  x = x + rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)")
  logits = Linear(256, name="o")(x)
  loss = mean(cross_entropy(logits, next))
  output logits
}
data D { train = bytes("text") }
train { model = T; data = D; batch = 2; steps = 1; optimizer = sgd(lr=0.01) }
"""
# ftrun finds these data by itself, in the package dataset-fashion-mnist
FOUND = """
model F(image: u8[B, 28, 28], label: u8[B]) {
  loss = mean(cross_entropy(Linear(10, name="fc")(flatten(f32(image) / 255, from=1)), label))
}
data D { train = idx("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz") }
train { model = F; data = D; batch = 8; steps = 1; optimizer = sgd(lr=0.01) }
"""
PROGRAM = r"""
#include "runtime/ft.h"
#include <stdio.h>
#define CHECK(call)                                                                                \
  if ((code = call)) return fprintf(stderr, "error: %s\n", ft_error()), code

int main(void) {
  FtModel *model;
  static unsigned char image[8 * 16];
  static int label[8];
  static float logits[8 * 3];
  const void *batch[] = {image, label};
  int code;
  CHECK(ft_open_with("m.so", &(FtOptions){.device = "cpu", .threads = 2}, &model));
  CHECK(ft_load_weights(model, "w.safetensors"));
  CHECK(ft_train_step(model, batch, NULL));
  CHECK(ft_predict(model, batch));
  CHECK(ft_read_output(model, "logits", logits, sizeof logits));
  CHECK(ft_save(model, "c.safetensors"));
  CHECK(ft_resume(model, "c.safetensors"));
  CHECK(ft_save_weights(model, "w.safetensors"));
  ft_close(model);
  return 0;
}
"""


def build_shim(folder):
    shim = os.path.join(folder, "shim.so")
    source = os.path.join(support.ROOT, "test", "fault", "shim.c")
    subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", shim, source], check=True)
    return shim


class Faults(embed.Programs):
    @classmethod
    def setUpClass(cls):
        """A folder with all that a run needs, copied for each run."""
        cls.temporary = tempfile.TemporaryDirectory(prefix="ft-faults-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.home = os.path.join(cls.temporary.name, "home")
        os.mkdir(cls.home)
        cls.shim = build_shim(cls.temporary.name)
        small.write_data(cls.home)
        letters = [letter for _, letter in sorted(tokenizer.LETTERS.items())]
        for name, text in (("m.ft", small.model("workers = 2", RECIPE)), ("t.ft", TEXT), ("f.ft", FOUND), ("text", "All that is here. " * 20),
                           ("vocab.json", json.dumps({letter: i for i, letter in enumerate(letters)})), ("merges.txt", "#version: 0.2\n")):
            with open(os.path.join(cls.home, name), "w") as file:
                file.write(text)
        for output in ("m.so", "m.ptx"):
            support.run("ftc", "m.ft", "-o", output, cwd=cls.home)
        for name in ("t", "f"):
            support.run("ftc", name + ".ft", "-o", name + ".so", cwd=cls.home)
        support.run("ftrun", "t.so", "--steps", 1, "--save", "t.safetensors", cwd=cls.home)
        support.run("ftc", "m.ft", "--emit=ir", "-o", "m.ftir", cwd=cls.home)
        support.run("ftrun", "m.so", "--steps", 4, "--save", "w.safetensors", cwd=cls.home)
        weights = support.read_safetensors(os.path.join(cls.home, "w.safetensors"))
        support.write_safetensors(os.path.join(cls.home, "prefixed.safetensors"), {"net." + name: value for name, value in weights.items()})
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
        tool = os.path.join(support.BUILD, "bin", command[0])  # a path stays what it is
        done = subprocess.run([tool, *command[1:]], cwd=work, env=environment,
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
        if left:
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

    def numbers(self, calls, most, last):
        if SOAK or calls <= most:
            return range(1, calls + 1)
        return sorted({1 + i * (calls - 1) // (most - 1) for i in range(most)} | set(range(max(calls - last, 0) + 1, calls + 1)))

    def tries(self, command, kinds=KINDS, most=12, callers=None, last=0):
        """`most` of the calls of each kind, spread over all, and the `last`."""
        found = []
        for kind in kinds:
            done, calls, whole = self.once(command, kind, 0, callers=callers)
            self.assertEqual(done.returncode, 0, done.stderr)
            for at in self.numbers(calls, most, last):
                for lasting in (False, True) if SOAK or at % 3 == 1 else (False,):
                    done, _, files = self.once(command, kind, at, lasting, callers)
                    problem = self.judge(command, done, files, whole)
                    if problem:
                        found.append(f"{' '.join(command)}: {kind} {at} of {calls}{' and on' if lasting else ''}: {problem}\n    {done.stderr.strip()[-300:]}")
        self.assertFalse(found, "\n" + "\n".join(found))

    def test_compile(self):
        self.tries(["ftc", "m.ft", "-o", "m.so"], most=5)
        self.tries(["ftc", "m.ft", "-o", "m.so"], ["malloc"], most=2, last=12)  # while it links

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
        self.tries(["ftrun", "info", "m.so"])

    def test_weights_with_a_prefix(self):
        self.tries(["ftrun", "eval", "m.so", "--weights", "prefixed.safetensors"], ["malloc"], last=20)

    def test_data_that_are_found(self):
        self.tries(["ftrun", "f.so", "--steps", "0"], ["open", "malloc", "thread"])

    def test_generate(self):
        self.tries(["ftrun", "generate", "t.so", "--weights", "t.safetensors", "--prompt", "All", "--tokens", "20"], most=8)

    def test_tokenize(self):
        self.tries(["ftrun", "tokenize", "text", "--tokenizer", ".", "--output", "text.bin"], most=8)

    def test_embedded(self):
        """A program with ft.h: an error it can go on from, in place of an end."""
        self.tries([self.build(PROGRAM, "program")], most=8)

    def test_inside_llvm(self):
        """Allocations of LLVM and of the C++ library."""
        self.tries(["ftc", "m.ft", "-o", "m.so"], ["malloc"], most=6, callers="c++")


if __name__ == "__main__":
    support.main()
