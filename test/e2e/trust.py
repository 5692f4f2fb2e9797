"""What a file from someone else may do (SECURITY.md): opening it runs no code and writes nothing; training it writes
below the current folder or where the command line says."""
import os
import shutil
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
            self.fails(1, "which the file lacks", "ftrun", evil, "--data", self.folder)
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
        evil = self.build("evil.so", hidden + 'const char ft_plan[] = "ft-plan 2\\n";')
        self.fails(1, "not the one that was read", "ftrun", evil, "--data", self.folder)


if __name__ == "__main__":
    support.main()
