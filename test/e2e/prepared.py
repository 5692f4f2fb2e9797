"""Weights of products of integers are rounded and packed once, and again whenever they may have changed (docs/design.md, "Prepared weights").
A program over ft.h does hundreds of things in random order that change weights, or do not, and predicts and generates in between: each
result has the bits of the same program with an artifact that prepares nothing (--disable=prepare). Likewise whole trainings that
evaluate, with averages of the weights too. What a plan says of memory is what is there."""
import os
import re
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import embed
import support

BATCH, CLASSES = 4, 5
IMAGES = """
model Net(x: f32[B, 3, 6, 7], label: i32[B]) {
  h = relu(QuantConv2d(8, 3, padding=1, name="conv")(x))
  h = relu(BatchNorm(name="norm")(QuantConv2d(8, 3, signed_input=false, name="conv2")(h)))
  h = relu(QuantLinear(24, signed_input=false, name="fc1")(flatten(h, from=1)))
  logits = QuantLinear(5, signed_input=false, bits=4, name="fc2")(h) + fake_quant(h, 0.5) @ FACTOR
  loss = mean(cross_entropy(logits, label))
  output logits
}
data D { train = npy("x.npy", "label.npy"); valid = npy("x.npy", "label.npy") }
train { batch = 4; epochs = 3; seed = 3; optimizer = adam(lr=0.01); ema = 0.9; eval every 3 steps }
"""
# weights of a fixed scale, and a product whose second operand is rounded only when a scale is known
IMAGES = IMAGES.replace("  h = relu(QuantConv2d(8, 3, padding=1", "  param factor: [24, 5] = normal(0.5)\n  h = relu(QuantConv2d(8, 3, padding=1").replace(
    "FACTOR", 'FakeQuant(name="factor")(factor)')
TEXT = """
block Attention()(x: [B, T, D]) {
  q, k, v = split(QuantLinear(3 * D, bias=false, name="qkv")(x), 3, axis=-1)
  q = rope(rearrange(q, "b t (h d) -> b h t d", h=2))
  k = rope(rearrange(k, "b t (h d) -> b h t d", h=2))
  v = rearrange(v, "b t (h d) -> b h t d", h=2)
  y = rearrange(attention(q, k, v, causal=true), "b h t d -> b t (h d)")
  return QuantLinear(D, bits=4, name="out")(y)
}
hyper T: int = 24
hyper D: int = 32
model Gpt(text: i32[B, T], next: i32[B, T]) {
  param bytes: [256, D] = normal(0.5)
  x = embed(bytes, text)
  repeat i in 0..2 as layer { x = x + Attention(name="attention")(RMSNorm(name="norm")(x)) }
  logits = QuantLinear(256, name="head")(x)
  loss = mean(cross_entropy(logits, next))
  if not training { output logits }
}
data Text { train = bytes("train.txt") }
train { batch = 4; epochs = 1; optimizer = adam(lr=0.01); eval = none }
"""
PROGRAM = r"""
#include "runtime/ft.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MUST(call)                                                                                 \
  do {                                                                                             \
    if (call) return printf("%s: %s\n", #call, ft_error()), 1;                                     \
  } while (0)

static uint64_t seed;
static unsigned draw(unsigned below) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(seed >> 33) % below;
}
static uint64_t sum_of(const void *bytes, size_t count) {
  uint64_t sum = 14695981039346656037u;
  for (size_t i = 0; i < count; i++) sum = (sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
  return sum;
}

static float x[4 * 3 * 6 * 7], out[4 * 24 * 256], values[1 << 16];
static int label[4], text[4 * 24], next[4 * 24];

int main(int argc, char **argv) { /* ARTIFACT FOLDER SEED IS_TEXT */
  FtModel *model;
  char weights[512], checkpoint[512];
  if (argc != 5) return 1;
  int is_text = atoi(argv[4]);
  FtOptions options = {.threads = 1 + atoi(argv[3]) % 2, .uses = FT_TRAIN | FT_PREDICT | (is_text ? FT_GENERATE : 0)};
  seed = strtoull(argv[3], NULL, 10);
  snprintf(weights, sizeof weights, "%s/w.safetensors", argv[2]);
  snprintf(checkpoint, sizeof checkpoint, "%s/c.safetensors", argv[2]);
  MUST(ft_open_with(argv[1], &options, &model));
  MUST(ft_init(model, 5));
  MUST(ft_save_weights(model, weights));
  MUST(ft_save(model, checkpoint));
  const void *images[] = {x, label}, *texts[] = {text, next};
  const void **inputs = is_text ? texts : images;
  int64_t prompt[] = {10, 20, 30}, token;
  int has_prompt = 0, params = 0;
  FtTensor tensor;
  while (!ft_param(model, params, &tensor)) params++;
  for (int i = 0; i < 300; i++) {
    unsigned what = draw(12);
    for (size_t k = 0; k < sizeof x / sizeof *x; k++) x[k] = (float)draw(1000) / 250 - 2;
    for (int k = 0; k < 4; k++) label[k] = (int)draw(5);
    for (int k = 0; k < 4 * 24; k++) text[k] = (int)draw(256), next[k] = (int)draw(256);
    double loss = 0;
    size_t bytes = is_text ? sizeof out : 4 * 5 * sizeof(float);
    if (what < 4) {
      MUST(ft_predict(model, inputs));
      MUST(ft_read_output(model, "logits", out, bytes));
      printf("%d predict %016llx\n", i, (unsigned long long)sum_of(out, bytes));
    } else if (what == 4) {
      MUST(ft_train_step(model, inputs, &loss));
      printf("%d step %a\n", i, loss);
    } else if (what == 5 || what == 11) { /* a weight, or what FakeQuant and BatchNorm have seen */
      MUST(ft_param(model, (int)draw((unsigned)params), &tensor));
      if (tensor.bytes > (int64_t)sizeof values) return printf("%s is large\n", tensor.name), 1;
      MUST(ft_read_param(model, tensor.name, values, (size_t)tensor.bytes));
      values[draw((unsigned)(tensor.bytes / 4))] *= 1.5f;
      MUST(ft_write_param(model, tensor.name, values, (size_t)tensor.bytes));
    } else if (what == 6) {
      MUST(ft_load_weights(model, weights));
    } else if (what == 7) {
      MUST(ft_save_weights(model, weights));
      MUST(ft_save(model, checkpoint));
    } else if (what == 8) {
      MUST(ft_resume(model, checkpoint));
    } else if (what == 9 && !draw(3)) {
      MUST(ft_init(model, draw(4)));
    } else if (is_text) {
      if (!has_prompt || !draw(4)) MUST(ft_prompt(model, prompt, 3, 1));
      has_prompt = 1;
      MUST(ft_scores(model, out, 256 * sizeof *out));
      printf("%d scores %016llx\n", i, (unsigned long long)sum_of(out, 256 * sizeof *out));
      if (ft_next(model, &(FtSampling){0}, &token)) has_prompt = 0;
    }
  }
  ft_close(model);
  return 0;
}
"""


class Prepared(embed.Programs):
    ending, seeds, text_seeds, program_text = ".so", 6, 4, PROGRAM
    device = []

    def artifacts(self, text, *flags):
        """The same program, with weights that are prepared and without."""
        with open(self.path("m.ft"), "w") as file:
            file.write(text)
        with open(self.path("train.txt"), "wb") as file:
            file.write(b"some text that is long enough for a sample or two " * 20)
        random = numpy.random.default_rng(1)
        numpy.save(self.path("x.npy"), random.normal(0, 1, (24, 3, 6, 7)).astype("f4"))
        numpy.save(self.path("label.npy"), random.integers(0, CLASSES, 24).astype("i4"))
        with_, without = self.path("with" + self.ending), self.path("without" + self.ending)
        support.run("ftc", self.path("m.ft"), *flags, "-o", with_)
        support.run("ftc", self.path("m.ft"), *flags, "--disable=prepare", "-o", without)
        info = [support.run("ftrun", "info", path).stdout for path in (with_, without)]
        self.assertIn("eval.prepare: ", info[0])
        self.assertNotIn(".prepare: ", info[1])
        return with_, without

    def program(self, artifacts, seed, is_text):
        program = self.build(self.program_text, "program")
        said = []
        for path in artifacts:
            folder = self.path("f" + os.path.basename(path))
            os.makedirs(folder, exist_ok=True)
            done = support.subprocess.run([program, path, folder, str(seed), str(int(is_text))], capture_output=True, text=True, cwd=self.folder, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout[-500:] + done.stderr)
            said.append(done.stdout.splitlines())
        self.assertEqual(said[0], said[1])
        sums = [line.split()[2] for line in said[0] if " step " not in line]
        self.assertGreater(len(set(sums)), len(sums) // 2)
        return said[0]

    def test_images(self):
        artifacts = self.artifacts(IMAGES)
        for seed in range(self.seeds):
            self.program(artifacts, seed, False)

    def test_text(self):
        artifacts = self.artifacts(TEXT)
        for seed in range(self.text_seeds):
            self.assertTrue(any("scores" in line for line in self.program(artifacts, seed, True)))

    def test_trainings(self):
        """Evaluations of the weights and of their average, in turns, while these change; then those of a file, and predictions."""
        artifacts = self.artifacts(IMAGES)
        logs, outputs = [], []
        for path in artifacts:
            log, weights = path + ".jsonl", path + ".safetensors"
            support.run("ftrun", path, "--log-jsonl", log, "--save", weights, "--set", "train.log.every=1", "--deterministic", *self.device, cwd=self.folder)
            logs.append([{k: v for k, v in line.items() if k not in ("samples_per_s", "seconds")} for line in support.read_jsonl(log)])
            support.run("ftrun", "predict", path, "--weights", weights, "--input", f"x={self.path('x.npy')}", "--output", f"logits={path}.npy", *self.device)
            evaluated = support.run("ftrun", "eval", path, "--weights", weights, *self.device, cwd=self.folder).stdout
            outputs.append((numpy.load(path + ".npy").tobytes(), re.sub(r" in [\d.]+ \w+|[\d.]+ samples/s", "", evaluated)))
        evaluations = [line for line in logs[0] if line.get("eval")]
        self.assertGreaterEqual(len(evaluations), 6)
        self.assertGreater(len({line["loss"] for line in evaluations}), 5)
        self.assertEqual(logs[0], logs[1])
        self.assertEqual(outputs[0], outputs[1])

    def test_memory(self):
        """ftrun info has a row for them, and --dry-run counts what all places have."""
        units = {"B": 1, "KiB": 1024, "MiB": 1 << 20}
        totals, said = [], []
        for path, is_there in zip(self.artifacts(IMAGES), (True, False)):
            info = support.run("ftrun", "info", path).stdout
            self.assertEqual("\n  weights prepared for inference " in info, is_there)
            self.assertEqual("\n  prepared  " in info, is_there)
            places = re.findall(r"^  \S+ +([\d.]+) (B|KiB|MiB)(?!  of )", re.search(r"\nmemory, by place\n(.*?)\n\n", info, re.S).group(1), re.M)
            totals.append(sum(float(number) * units[unit] for number, unit in places))
            said.append(1000 * float(re.search(r"memory ([\d.]+) kB for the model", support.run("ftrun", path, "--dry-run", *self.device, cwd=self.folder).stdout).group(1)))
        self.assertLess(abs((said[0] - said[1]) - (totals[0] - totals[1])), 300)
        self.assertGreater(totals[0] - totals[1], 3000)


class PreparedOnGpu(Prepared):
    """In the simulator: with fewer things to do, since these take longer there."""

    ending, seeds, text_seeds, device = ".ptx", 1, 1, ["--device", "sim"]
    program_text = PROGRAM.replace("i < 300", "i < 40").replace(".threads = ", '.device = "sim", .threads = ')

    def test_driver(self):
        """By the driver's functions (test/fake), which bring no batch to a graph that reads none."""
        os.mkdir(self.path("driver"))
        os.symlink(os.path.join(support.BUILD, "fake", "libfake_cuda.so"), self.path("driver", "libcuda.so.1"))
        logs = []
        for device in ("sim", "cuda"):
            environment = {"LD_LIBRARY_PATH": self.path("driver"), "ASAN_OPTIONS": "detect_leaks=0"} if device == "cuda" else {}
            for path in self.artifacts(IMAGES):
                support.run("ftrun", path, "--device", device, "--log-jsonl", path + ".jsonl", "--set", "train.log.every=1", "--deterministic", cwd=self.folder, env=environment)
                logs.append([(line["step"], line["loss"]) for line in support.read_jsonl(path + ".jsonl") if "loss" in line])
        self.assertGreater(len(logs[0]), 20)
        self.assertTrue(all(log == logs[0] for log in logs))


if __name__ == "__main__":
    support.main()
