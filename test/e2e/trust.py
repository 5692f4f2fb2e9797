"""What a file from someone else may do (SECURITY.md): opening it runs no code and writes nothing; training it writes
below the current folder or where the command line says."""
import os
import random
import re
import shutil
import stat
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import support

MODEL = """
model M(x: f32[B, 4], y: f32[B, 2]) {
  p = Linear(2, name="fc")(x)
  loss = mean(square(p - y))
  metric error = mean(abs(p - y))
  output p
}
data D { train = npy("x.npy", "y.npy"); valid = npy("x.npy", "y.npy") }
train { model = M; data = D; batch = 8; epochs = 2; optimizer = sgd(lr=0.01) }
"""
ATTENTION = """
model M(x: f32[B, T=6, 16]) {
  q, k, v = split(rearrange(Linear(48, name="qkv")(x), "b t (n h d) -> n b h t d", n=3, h=2), 3, axis=0)
  y = attention(q[0], k[0], v[0], mask=iota([1, T, T], axis=2) % 3 != iota([1, T, T], axis=1) % 4, dropout=0.4)
  loss = mean(square(y))
}
data D { train = npy("x.npy") }
train { model = M; data = D; batch = 2; optimizer = sgd(lr=0.01) }
"""


class Case(support.Case):
    def setUp(self):
        super().setUp()
        random = numpy.random.RandomState(0)
        for name, width in (("x", 4), ("y", 2)):
            numpy.save(self.path(name + ".npy"), random.standard_normal((40, width)).astype(numpy.float32))

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)


class SharedObjects(Case):
    """The plan of a .so is read without loading it."""

    def build(self, name, code):
        source = self.write("code.c", code)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path(name), source], check=True)
        return self.path(name)

    def constructor(self):
        self.mark = self.path("it-ran")
        return f'#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen("{self.mark}", "w")); }}\n'

    def plan(self):
        text = support.run("ftc", self.write("model.ft", MODEL), "--emit=plan").stdout
        lines = "\n".join('"%s\\n"' % line.replace("\\", "\\\\").replace('"', '\\"') for line in text.splitlines())
        return f'__attribute__((section(".ft_plan"))) const char ft_plan[] =\n{lines};\n'

    def test_what_is_no_artifact_is_never_loaded(self):
        for name in ("evil.so", "evil.ptx", "evil", "evil.safetensors"):
            evil = self.build(name, self.constructor())
            for command in (["info", evil], [evil], ["eval", evil, "--weights", "w"], ["bench", evil], ["generate", evil, "--weights", "w", "--prompt", "x"],
                            ["predict", evil, "--weights", "w", "--input", "x=x.npy"]):
                self.fails(1, "not one that ftc made", "ftrun", *command, cwd=self.folder)
            self.assertFalse(os.path.exists(self.mark), name)

    def test_info_and_what_is_before_the_training_run_nothing(self):
        for name in ("evil.so", "evil.ptx"):
            evil = self.build(name, self.constructor() + self.plan())
            self.assertIn("fc.weight", support.run("ftrun", "info", evil).stdout)
            self.fails(1, "no setting 'train.speed'", "ftrun", evil, "--set", "train.speed=3")
            os.rename(self.path("y.npy"), self.path("z.npy"))
            self.fails(1, "y.npy not found", "ftrun", evil, "--data", self.folder)
            os.rename(self.path("z.npy"), self.path("y.npy"))
            self.fails(1, "no device", "ftrun", evil, "--data", self.folder, "--device", "tpu")
            self.assertFalse(os.path.exists(self.mark))
            # that the constructor would have been noticed: the training loads it, and finds no kernels
            for more in ([], ["--dry-run"]):
                self.fails(1, "which the file lacks", "ftrun", evil, "--data", self.folder, *more)
                self.assertTrue(os.path.exists(self.mark))
                os.remove(self.mark)

    def test_a_plan_that_is_damaged_is_found_before_the_code_is_loaded(self):
        evil = self.build("evil.so", self.constructor() + self.plan().replace("train.batch", "train.bitch"))
        self.fails(1, "damaged", "ftrun", evil, "--data", self.folder)
        self.assertFalse(os.path.exists(self.mark))

    def test_the_name_does_not_matter(self):
        whole = self.compile(MODEL)
        for name in ("model.ptx", "model", "model.txt"):
            shutil.copy(whole, self.path(name))
            self.assertIn("fc.weight", support.run("ftrun", "info", self.path(name)).stdout)
            support.run("ftrun", self.path(name), "--data", self.folder, cwd=self.folder)

    def test_two_plans(self):
        """What is loaded is what was read: a symbol elsewhere that says something else is refused."""
        hidden = self.plan().replace("const char ft_plan", "const char other")
        evil = self.build("evil.so", hidden + 'const char ft_plan[] = "ft-plan 8\\n";')
        self.fails(1, "not the one that was read", "ftrun", evil, "--data", self.folder)


class Paths(Case):
    """What a model's own file may write, import and read; the command line may do more."""

    def setUp(self):
        super().setUp()
        self.here, self.outside = self.path("here"), self.path("outside")
        os.mkdir(self.here)
        os.mkdir(self.outside)
        self.precious = self.path("outside", "bashrc")
        self.write("outside/bashrc", "alias precious=true\n")
        os.mkdir(self.path("outside", "runs"))
        for name in ("step-00000001.safetensors", "step-00000002.safetensors.x.1.tmp", "best.safetensors"):
            self.write("outside/runs/" + name, "another run's")
        self.before = self.look(self.outside)

    def look(self, folder):
        found = {}
        for path, _, names in os.walk(folder):
            for name in names:
                with open(os.path.join(path, name), "rb") as file:
                    found[os.path.join(path, name)] = file.read()
            found[path] = None
        return found

    def build(self, recipe, name="model.ptx", data=None):
        text = MODEL.replace("optimizer", recipe + "; optimizer")
        if data:
            text = text.replace('"x.npy"', f'"{data}"')
        return self.compile(text, name=name)

    def train(self, artifact, *flags, code=0, needle=""):
        flags = [*flags, "--data", self.folder, "--steps", 3, *(["--device", "sim"] if artifact.endswith("ptx") else [])]
        if code:
            return self.fails(code, needle, "ftrun", artifact, *flags, cwd=self.here)
        return support.run("ftrun", artifact, *flags, cwd=self.here)

    def test_writing_outside_is_refused(self):
        os.symlink(self.outside, self.path("here", "link"))
        os.symlink(self.path("outside", "new"), self.path("here", "nowhere"))
        os.symlink(self.precious, self.path("here", "log.jsonl"))
        logs = [self.precious, "../outside/bashrc", "link/bashrc", "link/../outside/bashrc", "sub/../../outside/bashrc", "nowhere", "log.jsonl", "/dev/shm/ft-log", ".bashrc", "runs/.git/x"]
        folders = [self.path("outside", "runs"), "../outside/runs", "link/runs", "link/fresh/deep", "nowhere", "nowhere/deep", "..", ".git", "./.ssh/runs"]
        cases = [("train.log.jsonl", f'log {{ jsonl="{path}"; every=1 steps }}') for path in logs]
        cases += [("train.checkpoint.dir", f'checkpoint {{ dir="{path}"; every=1 steps; keep=1 }}') for path in folders]
        for number, (key, recipe) in enumerate(cases):
            with self.subTest(recipe):
                artifact = self.build(recipe, "model.so" if number % 2 else "model.ptx")
                # compiled in by ftc --set it is the artifact's word too
                self.train(artifact, code=1, needle=f"{key} is '")
                self.train(self.path("model.ft"), code=1, needle="is hidden or leads out of the current folder: --allow-paths lets")
        self.assertEqual(self.look(self.outside), self.before)
        self.assertEqual(sorted(os.listdir(self.here)), ["link", "log.jsonl", "nowhere"])
        for key, value in (("train.log.jsonl", self.precious), ("train.checkpoint.dir", "../outside/runs")):
            artifact = self.compile(MODEL, "--set", f"{key}={value}")
            self.train(artifact, code=1, needle=f"{key} is '")
        self.assertEqual(self.look(self.outside), self.before)

    def test_writing_inside_is_fine(self):
        os.mkdir(self.path("here", "real"))
        os.symlink("real", self.path("here", "link"))
        artifact = self.build('checkpoint { dir="link/a/b"; every=1 steps }; log { jsonl="./link//log.jsonl"; every=1 steps }')
        self.train(artifact)
        self.assertIn("step-00000003.safetensors", os.listdir(self.path("here", "real", "a", "b")))
        self.assertEqual([line["step"] for line in support.read_jsonl(self.path("here", "real", "log.jsonl")) if not line.get("eval")], [1, 2, 3])

    def test_the_command_line_and_allow_paths_go_further(self):
        log, runs = self.path("outside", "log.jsonl"), self.path("outside", "mine")
        artifact = self.build(f'checkpoint {{ dir="{runs}" }}; log {{ jsonl="{log}"; every=1 steps }}')
        self.train(artifact, "--set", f"train.checkpoint.dir={runs}1", "--log-jsonl", log + "1")
        self.train(artifact, "--set", f"train.checkpoint.dir={runs}2", "--set", f"train.log.jsonl={log}2")
        self.train(artifact, "--allow-paths")
        self.train(self.path("model.ft"), "--allow-paths")
        self.train(artifact, "--dry-run", "--log-jsonl", log + "3")  # opens no folder
        for end in ("", "1", "2"):
            self.assertTrue(os.path.isdir(runs + end) and os.path.exists(log + end), end)

    def test_data_from_outside(self):
        for data in (self.path("x.npy"), "../" + os.path.basename(self.folder) + "/x.npy", "here/../x.npy"):
            artifact = self.build("seed = 1", data=data)
            self.train(artifact, code=1, needle="names its data by relative paths")
            self.train(self.path("model.ft"), code=1, needle="--allow-paths lets it name others")
            self.train(artifact, "--allow-paths")
            self.train(self.path("model.ft"), "--allow-paths")

    def compile_fails(self, needle, *flags, cwd=None):
        done = self.fails(1, needle, "ftc", self.path("here", "main.ft"), "--emit=ir", *flags, cwd=cwd)
        self.assertNotIn("precious", done.stdout + done.stderr)
        return done

    def test_imports(self):
        secret = self.write("outside/secret.ft", "fn precious(x) { return = x }\n")
        self.write("outside/lib.ft", "fn twice(x) { return x + x }\n")
        os.symlink(secret, self.path("here", "link.ft"))
        os.symlink(self.precious, self.path("here", "other.ft"))
        os.mkdir(self.path("here", "lib"))
        self.write("here/words.txt", "precious precious\n")
        self.write("here/lib/twice.ft", 'import "../once.ft"\nfn twice(x) { return once(x) + x }\n')
        self.write("here/once.ft", "fn once(x) { return x }\n")
        rest = "\n" + MODEL
        for path, needle in ((secret, "is not below the folder"), ("../outside/secret.ft", "is not below the folder"), ("link.ft", "is not below the folder"),
                             ("/etc/passwd", "is not below the folder"), ("/nowhere/x.ft", "is not below the folder"), ("other.ft", "is not below the folder"),
                             ("words.txt", "is no .ft file"), ("nowhere.ft", "cannot read"), ("lib", "is no .ft file")):
            self.write("here/main.ft", f'import "{path}"' + rest)
            self.compile_fails(needle)
            self.compile_fails(needle, cwd=self.here)
        self.write("here/main.ft", f'import "{self.precious}"' + rest)
        self.compile_fails("is no .ft file", "--allow-paths")
        os.mkfifo(self.path("here", "pipe.ft"))
        self.write("here/main.ft", 'import "pipe.ft"' + rest)
        self.compile_fails("no regular file")
        for path, flags in (("lib/twice.ft", ()), ("../outside/lib.ft", ("--allow-paths",)), (self.path("outside", "lib.ft"), ("--allow-paths",))):
            self.write("here/main.ft", f'import "{path}"' + rest.replace("abs(p - y)", "abs(twice(p) - y)"))
            support.run("ftc", self.path("here", "main.ft"), "--emit=ir", *flags)
            support.run("ftc", "main.ft", "--emit=ir", *flags, cwd=self.here)
            self.train(self.path("here", "main.ft"), *flags)
        self.assertEqual({k: v for k, v in self.look(self.outside).items() if not k.endswith(".ft")}, self.before)

    def test_help_says_it(self):
        for tool in ("ftrun", "ftc"):
            self.assertIn("--allow-paths", support.run(tool, "--help").stdout)
        self.assertIn("runs no code and writes nothing", support.run("ftrun", "--help").stdout)
        with open(os.path.join(support.ROOT, "SECURITY.md")) as file:
            self.assertIn("--allow-paths", file.read())


class Outputs(Case):
    """Files that the command line names: a device or a pipe is not replaced, and a name that could be guessed not followed."""

    def test_targets(self):
        artifact, weights = self.compile(MODEL), self.path("w")
        support.run("ftrun", artifact, "--data", self.folder, "--steps", 2, "--save", weights)
        self.write("text.txt", "hello")
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        predict = ["predict", artifact, "--weights", weights, "--input", "x=" + self.path("x.npy"), "--output"]
        self.fails(1, "no regular file", "ftrun", *predict, pipe)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        os.symlink("/dev/full", self.path("full"))
        self.fails(3, "No space left", "ftc", self.path("model.ft"), "--emit=ir", "-o", self.path("full"))
        support.run("ftc", self.path("model.ft"), "--emit=ir", "-o", os.devnull)
        for path in ("/dev/full", os.devnull):
            self.assertTrue(stat.S_ISCHR(os.stat(path).st_mode))
        self.assertIn("param", support.run("ftc", self.path("model.ft"), "--emit=ir", "-o", "/dev/stdout").stdout)

    def test_a_planted_link_is_not_followed(self):
        """ftc's objects and the like had the process's number in their names: any could be planted."""
        victim, source = self.write("victim", "precious"), self.write("model.ft", MODEL)
        os.mkdir(self.path("shared"))
        script = 'for end in tmp o 0.o 1.o 2.o 3.o; do ln -s "$2" "$1.$$.$end"; done; shift 2; exec "$@"'
        for name in ("m.so", "m.ptx"):
            out = self.path("shared", name)
            subprocess.run(["sh", "-c", script, "sh", out, victim, os.path.join(support.BUILD, "bin", "ftc"), source, "-o", out], check=True)
            with open(victim) as file:
                self.assertEqual(file.read(), "precious")
            support.run("ftrun", "info", out)
        left = [name for name in os.listdir(self.path("shared")) if not os.path.islink(self.path("shared", name))]
        self.assertEqual(sorted(left), ["m.ptx", "m.so"])


class Plans(Case):
    """A plan that was changed, with its checksum made right: what is not refused has its stated meaning."""

    def change(self, *changes):
        lines, plan = self.lines_of(MODEL)
        for was, now in changes:
            self.assertTrue(any(re.search(was, line) for line in plan), was)
            plan = [re.sub(was, now, line) for line in plan]
        return self.written(lines, plan)

    def lines_of(self, model):
        with open(self.compile(model, name="model.ptx")) as file:
            lines = file.read().splitlines(keepends=True)
        return lines, [line[len("//@ft "):] for line in lines if line.startswith("//@ft ")][:-1]

    def written(self, lines, plan):
        text = "".join(plan)
        sum_ = 0xCBF29CE484222325  # FNV-1a
        for byte in text.encode():
            sum_ = (sum_ ^ byte) * 0x100000001B3 % 2**64
        with open(self.path("changed.ptx"), "w") as file:
            file.writelines("//@ft " + line for line in plan if line)
            file.write(f"//@ft checksum {sum_:016x}\n")
            file.writelines(line for line in lines if not line.startswith("//@ft "))
        return self.path("changed.ptx")

    def test_refused(self):
        self.assertIn("fc.weight", support.run("ftrun", "info", self.change()).stdout)
        for changes, needle in (([(r'loss "loss" f32', 'loss "loss" f64')], 'writes its loss "loss" as f64[]'),
                                ([(r'^ *loss "loss".*\n', "")], "has 0 losses"),
                                ([(r'^state "@step".*\n', "")], 'no state has the role step'),
                                ([(r'metric "error"', 'metric "$(touch${IFS}x)"')], "is no name of"),
                                ([(r'param "fc.bias"', r'param "\\x1b[2Jbias"')], "is no name of"),
                                ([(r"grid=\d+,\d+,\d+", "grid=1,70000,1")], "must lie in 1..65535"),
                                ([(r"( block=\d+,\d+,\d+)", r"\1 shared=300000")], "must lie in 1..232448")):
            with self.subTest(needle):
                self.fails(1, needle, "ftrun", self.change(*changes), "--device", "sim", "--data", self.folder)
                self.fails(1, needle, "ftrun", "info", self.path("changed.ptx"))

    def test_words_of_operations(self):
        """Those of attention and its gradient have the most operands and numbers."""
        draw = random.Random(7)
        lines, plan = self.lines_of(ATTENTION)
        operations = [i for i, line in enumerate(plan) if re.match(r" *op attention", line)]
        self.assertGreaterEqual(len(operations), 2)
        for number in range(24):
            changed, at = list(plan), draw.choice(operations)
            words = changed[at].split()
            first, last = words.index("of") + 1, words.index("with")
            words = (words[:last], words[: draw.randrange(first, len(words))], words[:first] + [str(draw.randrange(3)) for _ in range(draw.choice([1, 5, 40]))] + words[first:],
                     [draw.choice(["nan", "-1", "99999999999"]) if i == first + number % 9 else word for i, word in enumerate(words)])[number % 4]
            changed[at] = " ".join(words) + "\n"
            done = support.run("ftrun", "info", self.written(lines, changed), check=False)
            self.assertIn(done.returncode, (0, 1), f"{changed[at]}{done.stderr}")

    def test_data_beside_a_source_that_the_artifact_names(self):
        here = self.path("here")
        os.mkdir(here)
        changed = self.change((r'file "x.npy"', 'file "private.npy"'), (r'^source "[^"]*"', f'source "{self.folder}/private/model.ft"'))
        os.mkdir(self.path("private"))
        os.rename(self.path("x.npy"), self.path("private", "private.npy"))
        shutil.copy(changed, here)
        flags = [os.path.join(here, "changed.ptx"), "--device", "sim", "--steps", 2]
        shutil.copy(self.path("y.npy"), here)
        self.fails(1, "private.npy not found", "ftrun", *flags, cwd=here)
        support.run("ftrun", *flags, "--allow-paths", cwd=here)

    def test_what_is_shown_does_not_steer_a_terminal(self):
        changed = self.change((r'^source "[^"]*"', r'source "\\x1b[31m/nowhere.ft"'))
        done = support.run("ftrun", "info", changed)
        self.assertIn("?[31m/nowhere.ft", done.stdout)
        self.assertNotIn("\x1b", done.stdout)
        done = self.fails(1, "?[31m/nowhere.ft", "ftrun", changed, "--device", "cpu", "--data", self.folder)
        self.assertNotIn("\x1b", done.stdout + done.stderr)


if __name__ == "__main__":
    support.main()
