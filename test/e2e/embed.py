"""docs/embedding.md: its programs compile as it says, without a warning, and do what it says; ft.h refuses what it must."""
import os
import re
import subprocess
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import gpt
import support

LINE = """model Line(x: f32[B, I=3], y: f32[B, 1]) {
  loss = mean((Linear(1, name="w")(x) - y) ** 2)
  output loss
}
data D { train = npy("x.npy", "y.npy") }
train { model = Line; data = D; batch = 7; optimizer = sgd(lr=0.01) }
"""
REFUSALS = r"""
#include "runtime/ft.h"
#include <stdio.h>
#include <string.h>
#define MUST(call, want, text)                                                                     \
  do {                                                                                             \
    int have = (call);                                                                             \
    if (have != (want) || (have && !strstr(ft_error(), text)))                                     \
      return printf("line %d: %d, %s\n", __LINE__, have, ft_error()), 1;                           \
  } while (0)

int main(int argc, char **argv) { /* TEXT WEIGHTS LINE FOLDER */
  FtModel *text, *line;
  int64_t token, prompt[] = {1, 2, 3}, far[] = {256}, one, two;
  float scores[256], again[256];
  char path[512];
  int tokens[11], outside[11];
  for (int i = 0; i < 11; i++) tokens[i] = outside[i] = 1;
  const void *batch[] = {tokens, tokens}, *bad[] = {tokens, outside}, *bad_text[] = {outside, NULL};
  if (argc != 5) return 1;
  FtOptions all = {.uses = FT_TRAIN | FT_PREDICT | FT_GENERATE}, other = {.device = "toaster"};
  FtSampling greedy = {0}, cold = {.temperature = -1};
  MUST(ft_open_with(argv[1], &other, &text), 1, "toaster");
  MUST(ft_open_with(argv[3], &all, &line), 1, "generate needs a model of one input");
  MUST(ft_open(argv[3], 1, &line), 0, "");
  MUST(ft_prompt(line, prompt, 3, 0), 1, "FT_GENERATE");
  if (ft_vocabulary(line) != 0) return 2;
  MUST(ft_open_with(argv[1], &all, &text), 0, "");
  if (ft_vocabulary(text) != 256) return 3;
  MUST(ft_next(text, &greedy, &token), 1, "ft_prompt");
  MUST(ft_load_weights(text, "nowhere.safetensors"), 1, "nowhere");
  MUST(ft_load_weights(text, argv[2]), 0, "");
  MUST(ft_prompt(text, far, 1, 0), 1, "256 is no token");
  MUST(ft_prompt(text, prompt, 0, 0), 1, "nothing to go on with");
  MUST(ft_prompt(text, prompt, 3, 0), 0, "");
  MUST(ft_next(text, &cold, &token), 1, "cannot be negative");
  MUST(ft_scores(text, scores, 4), 1, "1024 bytes");
  MUST(ft_scores(text, scores, sizeof scores), 0, "");
  MUST(ft_next(text, &greedy, &one), 0, "");
  for (int i = 0; i < 256; i++)
    if (scores[i] > scores[one]) return 4;
  /* the same text again, after what used its memory; then other weights, and back */
  MUST(ft_prompt(text, prompt, 3, 0), 0, "");
  MUST(ft_predict(text, batch), 0, "");
  MUST(ft_scores(text, again, sizeof again), 0, "");
  if (memcmp(scores, again, sizeof scores)) return 5;
  snprintf(path, sizeof path, "%s/ckpt.safetensors", argv[4]);
  MUST(ft_save(text, path), 0, "");
  MUST(ft_train_step(text, batch, NULL), 0, "");
  MUST(ft_scores(text, again, sizeof again), 0, "");
  if (!memcmp(scores, again, sizeof scores) || ft_steps(text) != 1) return 6;
  MUST(ft_resume(text, path), 0, "");
  MUST(ft_append(text, one), 0, "");
  MUST(ft_next(text, &greedy, &two), 0, "");
  MUST(ft_prompt(text, (int64_t[]){1, 2, 3, one}, 4, 0), 0, "");
  MUST(ft_next(text, &greedy, &token), 0, "");
  if (token != two || ft_steps(text) != 0) return 7;
  MUST(ft_append(text, 256), 1, "256 is no token");
  /* what is looked up is checked, as ftrun does; the weights stay as they were */
  outside[7] = 256;
  MUST(ft_train_step(text, bad, NULL), 1, "element 7 of input next is 256, but input next takes 0 to 255");
  MUST(ft_predict(text, bad), 1, "element 7 of input next");
  MUST(ft_predict(text, bad_text), 1, "element 7 of input text is 256");
  outside[7] = -1;
  MUST(ft_train_step(text, bad_text, NULL), 1, "element 7 of input text is -1, but");
  if (ft_steps(text) != 0) return 8;
  MUST(ft_train_step(text, batch, NULL), 0, "");
  /* NULL is a mistake of the caller's, not a crash */
  FtModel *none = text;
  MUST(ft_open(NULL, 1, &none), 1, "path is NULL");
  MUST(ft_open(argv[1], 1, NULL), 1, "out is NULL");
  MUST(ft_open("nowhere.so", 1, &none), 1, "nowhere.so");
  if (none) return 9;
  MUST(ft_open_with(argv[3], NULL, &none), 0, "");
  ft_close(none);
  MUST(ft_set(text, NULL, "1"), 1, "key is NULL");
  MUST(ft_set(text, "train.lr", NULL), 1, "value is NULL");
  MUST(ft_set(NULL, "train.lr", "1"), 1, "model is NULL");
  MUST(ft_init(NULL, 1), 1, "model is NULL");
  MUST(ft_input(text, 0, NULL), 1, "out is NULL");
  MUST(ft_train_step(text, NULL, NULL), 1, "inputs is NULL");
  MUST(ft_predict(text, NULL), 1, "inputs is NULL");
  MUST(ft_read_output(text, NULL, scores, 4), 1, "name is NULL");
  MUST(ft_read_output(text, "loss", NULL, 4), 1, "to is NULL");
  MUST(ft_read_param(text, NULL, scores, 4), 1, "name is NULL");
  MUST(ft_write_param(text, "norm.weight", NULL, 128), 1, "from is NULL");
  MUST(ft_load_weights(text, NULL), 1, "path is NULL");
  MUST(ft_save_weights(text, NULL), 1, "path is NULL");
  MUST(ft_save(text, NULL), 1, "path is NULL");
  MUST(ft_resume(text, NULL), 1, "path is NULL");
  MUST(ft_prompt(text, NULL, 3, 0), 1, "tokens is NULL");
  MUST(ft_next(text, NULL, &token), 1, "sampling is NULL");
  MUST(ft_next(text, &greedy, NULL), 1, "token is NULL");
  MUST(ft_scores(text, NULL, sizeof scores), 1, "scores is NULL");
  if (ft_steps(NULL) || ft_vocabulary(NULL) || ft_device(NULL)[0]) return 10;
  ft_close(text);
  ft_close(line);
  return 0;
}
"""


class Programs(support.Case):
    """Builds programs with the command of docs/embedding.md."""

    def build(self, source, name):
        text = open(os.path.join(support.ROOT, "docs", "embedding.md")).read()
        command = re.search(r"    gcc program.c (.*?) -o program", text, re.S).group(1)
        flags = command.replace("\\\n", " ").replace("build/", support.BUILD + "/").split()
        with open(self.path(name + ".c"), "w") as file:
            file.write(source)
        with open(os.path.join(support.BUILD, "CMakeCache.txt")) as file:
            cache = file.read()
        sanitize = re.findall(r"^FT_SANITIZE:STRING=(.+)$", cache, re.M)
        switches = [f"-fsanitize={what}" for what in sanitize]
        if support.IS_SANITIZED:
            switches.append("-fno-sanitize=function")  # a driver's handles are void * to those who have not its header
        compiler = re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", cache, re.M).group(1) if sanitize else "gcc"  # gcc's sanitizers are not clang's
        command = [compiler, "-std=c17", "-Wall", "-Wextra", "-Werror", *switches, self.path(name + ".c"), *flags, "-o", self.path(name)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=support.ROOT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.path(name)


class Embed(Programs):
    def text_model(self):
        random = numpy.random.RandomState(3)
        width, made = 32, {}
        shapes = {"bytes.weight": (256, width), "norm.weight": (width,)}
        for name, shape in [("norm1", (width,)), ("norm2", (width,)), ("attention.qkv", (3 * width, width)), ("attention.out", (width, width)),
                            ("mlp.up", (4 * width, width)), ("mlp.down", (width, 4 * width))]:
            shapes[f"layer.0.{name}.weight"] = shape
        for name, shape in shapes.items():
            made[name] = (random.randn(*shape) * 0.3 + ("norm" in name)).astype(numpy.float32)
        support.write_safetensors(self.path("w.safetensors"), made)
        return self.compile(gpt.BYTES, "-D", "D=32", "-D", "L=1", "-D", "T=11", "--set", "train.batch=1", name="text.so")

    def test_the_programs_of_the_docs(self):
        train, generate = re.findall(r"```c\n(.*?)```", open(os.path.join(support.ROOT, "docs", "embedding.md")).read(), re.S)
        done = subprocess.run([self.build(train, "train"), self.compile(LINE, name="line.so"), self.path("line.safetensors")], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, *_, last = done.stdout.splitlines()
        self.assertRegex(first, r"^[\d.e-]+ on cpu, 2 threads$")
        self.assertLess(float(last.split()[0]), 0.2 * float(first.split()[0]))
        self.assertRegex(last, "after 200 steps$")
        self.assertIn("w.weight", support.read_safetensors(self.path("line.safetensors")))

        artifact = self.text_model()
        done = subprocess.run([self.build(generate, "generate"), artifact, self.path("w.safetensors"), "5", "80", "3", "200"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        flags = ["--temperature", "0.8", "--top-k", 40, "--top-p", "0.95", "--seed", 5, "--tokens", 20]
        wanted = support.run("ftrun", "generate", artifact, "--weights", self.path("w.safetensors"), "--prompt-tokens", "80,3,200", *flags).stdout
        self.assertEqual(done.stdout.split(), wanted.split()[3:])

    def test_refusals(self):
        program = self.build(REFUSALS, "refusals")
        done = subprocess.run([program, self.text_model(), self.path("w.safetensors"), self.compile(LINE, name="line.so"), self.path("")], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


if __name__ == "__main__":
    support.main()
