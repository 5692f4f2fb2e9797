"""docs/adding-*.md are true: their patches, applied to a copy of the tree, make an op that trains, an optimiser that does
what PyTorch's does, a data source that training reads, and a pass."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OP = "log2"
PAGES = ("adding-an-op", "adding-an-optimizer", "adding-a-data-source", "adding-a-pass")
# In the copy: the cases of the op, on the CPU and in the simulator; as a compile-time number; in the documentation.
CHECK = """
import sys
sys.path.insert(0, "test/num"), sys.path.insert(0, "test")
import ops, support
cases = [case for case in ops.CASES if case[0].startswith("OP(")]
assert len(cases) >= 2, "test/num/ops.py has no case of it"
class Cpu(ops.Compared):
    def test(self):
        self.group(cases)
class Sim(ops.Compared):
    artifact, device = "model.ptx", "sim"
    def test(self):
        self.group(cases)
class Number(support.Case):
    def test(self):
        text = "model M(x: f32[B, 1]) {\\n y = Linear(1, name=\\"f\\")(x)\\n loss = mean(y) * OP(8.0)\\n}\\ntrain { model = M; batch = 1; optimizer = sgd(lr=0.1) }\\n"
        with open(self.path("n.ft"), "w") as file:
            file.write(text)
        self.assertIn("value=3}", support.run("ftc", self.path("n.ft"), "--emit=ir", "--stop-after=simplify").stdout)
support.main()
"""

# In the copy: training from tables of numbers is training from the same numbers in NumPy's.
SOURCE = """
import json, sys
sys.path.insert(0, "test")
import numpy as np, support
class Training(support.Case):
    def test(self):
        x, y = np.random.default_rng(1).standard_normal((64, 3)).astype(np.float32), np.arange(64) % 4
        np.save(self.path("x.npy"), x), np.save(self.path("y.npy"), y)
        np.savetxt(self.path("x.txt"), x, "%.9g", header="a b c", comments=""), np.savetxt(self.path("y.txt"), y, "%d", header="y", comments="")
        losses = []
        for source in ('npy("x.npy", "y.npy")', 'numbers("x.txt", "y.txt", skip=1)'):
            with open(self.path("m.ft"), "w") as file:
                file.write('model M(x: f32[B, 3], y: i32[B]) {\\n  loss = mean(cross_entropy(Linear(4, name="f")(x), y))\\n}\\n'
                           "data D { train = " + source + " }\\ntrain { model = M; data = D; batch = 8; steps = 16; optimizer = sgd(lr=0.1); eval = none; log { every = 1 steps } }\\n")
            support.run("ftrun", self.path("m.ft"), "--data", self.path("."), "--log-jsonl", self.path("log"))
            with open(self.path("log")) as file:
                losses.append([json.loads(line).get("loss") for line in file])
        self.assertGreater(len(losses[0]), 15)
        self.assertEqual(losses[0], losses[1])
support.main()
"""


def hunks(page):
    """(file, old lines, new lines) of the page's diff, whose hunks are told by their lines and not by numbers."""
    diff = re.search(r"^```diff\n(.*?)^```", page, re.M | re.S).group(1)
    for part in re.split(r"^--- (?:a/.*|/dev/null)\n\+\+\+ b/", diff, flags=re.M)[1:]:
        name, *rest = part.split("\n")
        for hunk in "\n".join(rest).split("@@\n")[1:]:
            lines = hunk.rstrip("\n").split("\n")
            assert all(line[:1] in " +-" for line in lines if line), (name, lines)
            yield name, [x[1:] for x in lines if x[:1] != "+"], [x[1:] for x in lines if x[:1] != "-"]


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = tempfile.mkdtemp(prefix="ft-pages-")
        cls.addClassCleanup(shutil.rmtree, cls.tree)
        files = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
        for name in filter(None, files):
            if os.path.isfile(os.path.join(ROOT, name)):
                os.makedirs(os.path.join(cls.tree, os.path.dirname(name)), exist_ok=True)
                shutil.copy(os.path.join(ROOT, name), os.path.join(cls.tree, name))
        cls.places = {page: cls.apply(page) for page in PAGES}
        cls.build = os.path.join(cls.tree, "build")
        quickly = "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0"  # what is built runs for seconds
        subprocess.run(["cmake", "-G", "Ninja", "-S", cls.tree, "-B", cls.build, *quickly], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["ninja", "-C", cls.build, "--quiet", "ftc", "ftrun", "ftopt", "unit_runtime_numbers"], check=True)

    @classmethod
    def apply(cls, page):
        """The folders whose files it changes."""
        with open(os.path.join(ROOT, "docs", page + ".md")) as file:
            changes = list(hunks(file.read()))
        for name, old, new in changes:
            path = os.path.join(cls.tree, name)
            old, new = "\n".join(old) + "\n", "\n".join(new) + "\n"
            if not old.strip():
                assert not os.path.exists(path), f"{name} is there already"
                text, old = "\n", "\n"
            else:
                with open(path) as file:
                    text = file.read()
            assert text.count(old) == 1, f"{name} does not have this once:\n{old}"
            with open(path, "w") as file:
                file.write(text.replace(old, new))
        return {os.path.dirname(name) for name, _, _ in changes}

    def python(self, *arguments):
        return subprocess.run([sys.executable, *arguments], cwd=self.tree, env=dict(os.environ, FT_BUILD=self.build), capture_output=True, text=True)

    def test_adding_an_op(self):
        self.assertLessEqual(len(self.places["adding-an-op"]), 5, "the page promises five places")
        done = self.python("-c", CHECK.replace("OP", OP))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 passed, 0 failed", done.stdout)

    def test_adding_an_optimizer(self):
        self.assertLessEqual(len(self.places["adding-an-optimizer"]), 4, "the page promises four places")
        done = self.python("test/num/optimizer.py", "adamax")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "^(6|12) passed, 0 failed")  # half of the twelve with FT_TURN
        with open(os.path.join(self.tree, "m.ft"), "w") as file:
            file.write('model M(x: f32[B, 2]) {\n  loss = mean(Linear(1, name="f")(x) ** 2)\n}\n'
                       "train { model = M; batch = 2; optimizer = adamax(weight_decay=0.1) }\n")
        done = subprocess.run([os.path.join(self.build, "bin", "ftc"), "m.ft", "--emit=plan"], cwd=self.tree, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ('setting train.optimizer "adamax" given', "setting train.lr 0.002", 'state "@adamax.u"'):
            self.assertIn(text, done.stdout)

    def test_adding_a_data_source(self):
        self.assertLessEqual(len(self.places["adding-a-data-source"]), 4, "the page promises four places")
        done = subprocess.run([os.path.join(self.build, "unit", "unit_runtime_numbers")], cwd=self.tree, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = self.python("-c", SOURCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 passed, 0 failed", done.stdout)

    def test_adding_a_pass(self):
        self.assertLessEqual(len(self.places["adding-a-pass"]), 4, "the page promises four places")
        done = self.python("/usr/lib/llvm-19/build/utils/lit/lit.py", "-v", "test/lit/passes/crop.ftir", "test/lit/passes/disable.test")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(self.tree, "crop.ft"), "w") as file:  # the slice begins in the padding
            file.write('model M(x: f32[B, 8]) {\n  loss = mean(pad(Linear(8, name="f")(x), (0, 2), (0, 2))[:, 1:7] ** 2)\n}\n'
                       "train { model = M; batch = 2; optimizer = sgd(lr=0.1) }\n")
        made = []
        for more in ([], ["--disable=crop"]):
            command = [os.path.join(self.build, "bin", "ftc"), "crop.ft", "--time-passes", "--stop-after=dce2", "--emit=ir", *more]
            done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"crop +off" if more else r"crop +[0-9]")
            made.append(done.stdout)
        self.assertIn("f32[2,12]", made[1])
        self.assertNotIn("f32[2,12]", made[0].split("graph")[1])


if __name__ == "__main__":
    unittest.main()
