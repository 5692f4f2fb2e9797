"""ftrun deploy -o model.ptx: a C program that has the header, the PTX and the weights computes by a driver (test/fake: its kernels run in the
simulator) what ftrun predict does, for inputs on the host and on the GPU; what is wrong gives a code and a sentence."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import support
from deploy import mlp
from deploy_c import GPT, vectors

FAKE = os.path.join(support.BUILD, "fake")
STRICT = ["-Wall", "-Wextra", "-Werror"]
SANITIZED = ["clang-19", "-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILERS = [["gcc", "-std=c11", "-O2"], ["clang-19", "-std=c11", "-O2"]]
if support.IS_SANITIZED:  # so is the fake driver then, and no program without the sanitizers' library can load it
    SANITIZED.append("-fno-sanitize=function")  # a driver's handles are void * to those who have not its header
    COMPILERS = [SANITIZED]
CNN = """model Cnn(x: f32[B, 4, 9, 10]) {
  y = relu(BatchNorm(name="n")(Conv2d(8, 3, padding=1, name="c")(x)))
  h = relu(Conv2d(6, (2, 3), stride=(2, 1), bias=false, name="d")(max_pool2d(y, 2)))
  z = Linear(5, name="l")(flatten(h, from=1))
  loss = mean(z ** 2) + mean(y ** 2)
  output z
}
data D { train = npy("i.npy") }
train { model = Cnn; data = D; batch = 3; optimizer = sgd(lr=0.01) }
"""
# P_ and p_ are the model's names.
PROGRAM = r"""
#define P_IMPLEMENTATION
#include "DEPLOYED.h"
typedef int Retain(void **, int);
typedef int Current(void *);
typedef int Copy(uint64_t, const void *, size_t, void *);
typedef int Back(void *, uint64_t, size_t, void *);
typedef int Stream(void **, unsigned);
typedef int Wait(void *);
static Copy *send;
static Back *fetch;
static Wait *settle;
static void *stream, *own_context;
static int in_graph;

static void *driver(const char *name) {
  static void *library;
  if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
  return dlsym(library, name);
}

static char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  char *memory = malloc(1 << 24);
  if (!file) exit(99);
  *bytes = fread(memory, 1, 1 << 24, file);
  fclose(file);
  return memory;
}

static void use_driver(void) { /* a context and a stream of the program's own */
  *(void **)&send = driver("cuMemcpyHtoDAsync_v2");
  *(void **)&fetch = driver("cuMemcpyDtoHAsync_v2");
  *(void **)&settle = driver("cuStreamSynchronize");
  int (*init)(unsigned), device = 0, (*get)(int *, int);
  Retain *retain;
  Current *current;
  Stream *create;
  *(void **)&init = driver("cuInit");
  *(void **)&get = driver("cuDeviceGet");
  *(void **)&retain = driver("cuDevicePrimaryCtxRetain");
  *(void **)&current = driver("cuCtxSetCurrent");
  *(void **)&create = driver("cuStreamCreate");
  if (init(0) || get(&device, 0) || retain(&own_context, device) || current(own_context) || create(&stream, 1)) exit(98);
}

/* What the calls of one p_run_on put into the stream, as a graph that is launched. */
static int run_graph(const p_model *model, const void *const *inputs, void *const *outputs, int64_t count, void *workspace) {
  int (*begin)(void *, int), (*end)(void *, void **), (*make)(void **, void *, unsigned long long), (*launch)(void *, void *), (*drop)(void *), (*drop_exec)(void *);
  void *graph = NULL, *exec = NULL;
  *(void **)&begin = driver("cuStreamBeginCapture_v2");
  *(void **)&end = driver("cuStreamEndCapture");
  *(void **)&make = driver("cuGraphInstantiateWithFlags");
  *(void **)&launch = driver("cuGraphLaunch");
  *(void **)&drop = driver("cuGraphDestroy");
  *(void **)&drop_exec = driver("cuGraphExecDestroy");
  if (begin(stream, 1)) exit(94);
  int code = p_run_on(model, inputs, outputs, count, workspace, P_WORKSPACE, stream);
  if (end(stream, &graph) || make(&exec, graph, 0) || launch(exec, stream) || launch(exec, stream) || settle(stream)) exit(94);
  drop(graph);
  drop_exec(exec);
  return code;
}

static void on_gpu(const p_model *model, char *in, int64_t in_bytes, char *out, int64_t out_bytes, int64_t count, int which, void *workspace, int *code) {
  void *given = NULL, *taken = NULL, *other[P_OUTPUTS];
  if (p_allocate(model, count * in_bytes, &given) || p_allocate(model, count * out_bytes, &taken)) exit(97);
  for (int i = 0; i < P_OUTPUTS; i++)
    if (p_allocate(model, P_BATCH * 100000, &other[i])) exit(97);
  const void *inputs[P_INPUTS] = {given};
  void *outputs[P_OUTPUTS];
  for (int i = 0; i < P_OUTPUTS; i++) outputs[i] = i == which ? taken : other[i];
  if (send((uint64_t)given, in, count * in_bytes, stream)) exit(96);
  *code = in_graph ? run_graph(model, inputs, outputs, count, workspace) : p_run_on(model, inputs, outputs, count, workspace, P_WORKSPACE, stream);
  if (!*code) *code = p_wait(model, workspace, stream);
  if (*code >= 0 && (fetch(out, (uint64_t)taken, count * out_bytes, stream) || settle(stream))) exit(95);
  p_release(model, given);
  p_release(model, taken);
  for (int i = 0; i < P_OUTPUTS; i++) p_release(model, other[i]);
}

static int refuses(const p_model *model, const void *const *inputs, void *const *outputs, void *workspace) {
  const void *none[P_INPUTS] = {NULL};
  void *no_outputs[P_OUTPUTS] = {NULL};
  return p_run(model, inputs, outputs, P_BATCH + 1, workspace, P_WORKSPACE) == -1 && p_run(model, inputs, outputs, 0, workspace, P_WORKSPACE) == -1 &&
         p_run(model, inputs, outputs, 1, workspace, P_WORKSPACE - 1) == -1 && strstr(p_message(), "workspace") &&
         p_run(model, inputs, outputs, 1, (char *)workspace + 64, P_WORKSPACE) == -1 && p_run(model, inputs, outputs, 1, NULL, P_WORKSPACE) == -1 &&
         p_run(model, none, outputs, 1, workspace, P_WORKSPACE) == -1 && p_run(model, inputs, no_outputs, 1, workspace, P_WORKSPACE) == -1 &&
         p_run(NULL, inputs, outputs, 1, workspace, P_WORKSPACE) == -1 && p_run_on(model, inputs, outputs, -1, workspace, P_WORKSPACE, stream) == -1 &&
         p_wait(model, NULL, stream) == -1 && p_allocate(model, 0, &workspace) == -1;
}

int main(int argc, char **argv) { /* PTX IN OUT SAMPLES BYTES-IN BYTES-OUT WHICH host|device|graph|memory; more inputs are NULL */
  int which = atoi(argv[7]), code, first_code = 0, is_host = !strcmp(argv[8], "host"), is_memory = !strcmp(argv[8], "memory");
  int64_t samples = atoll(argv[4]), in_bytes = atoll(argv[5]), out_bytes = atoll(argv[6]);
  size_t bytes, weights_bytes;
  char *in = read_file(argv[2], &bytes), *out = calloc(samples, out_bytes), *other = malloc(P_BATCH * 100000);
  p_model *model = NULL;
  void *workspace = NULL, *context = NULL;
  if (argc != 9 || bytes != (size_t)(samples * in_bytes)) return 100;
  in_graph = !strcmp(argv[8], "graph");
  if (!is_host) use_driver();
  if (is_memory) {
    char path[1000];
    snprintf(path, sizeof path, "%.*s.weights", (int)strlen(argv[1]) - 4, argv[1]);
    size_t ptx_bytes;
    char *ptx = read_file(argv[1], &ptx_bytes), *weights = read_file(path, &weights_bytes);
    code = p_load_memory(&model, ptx, ptx_bytes, weights, weights_bytes, P_CURRENT);
    free(ptx);
    free(weights);
  } else {
    code = p_load(&model, argv[1], NULL, 0);
  }
  if (!code) code = p_allocate(model, P_WORKSPACE, &workspace);
  if (code) return fprintf(stderr, "%d: %s\n", code, p_message()), 200 - code;
  for (int64_t at = 0; at < samples; at += P_BATCH) {
    int64_t count = samples - at < P_BATCH ? samples - at : P_BATCH;
    const void *inputs[P_INPUTS] = {in + at * in_bytes};
    void *outputs[P_OUTPUTS];
    for (int i = 0; i < P_OUTPUTS; i++) outputs[i] = other;
    outputs[which] = out + at * out_bytes;
    if (is_host)
      code = p_run(model, inputs, outputs, count, workspace, P_WORKSPACE);
    else
      on_gpu(model, in + at * in_bytes, in_bytes, out + at * out_bytes, out_bytes, count, which, workspace, &code);
    if (code) fprintf(stderr, "%d: %s\n", code, p_message());
    if (code < 0 || (code && is_host)) return code < 0 ? 200 - code : code;
    if (code) first_code = code;
    if (!refuses(model, inputs, outputs, workspace)) return 101;
  }
  if (!is_host && (((Retain *)(uintptr_t)driver("cuCtxGetCurrent"))(&context, 0) || context != own_context)) return 102;
  p_release(model, workspace);
  p_free(model);
  FILE *file = fopen(argv[3], "wb");
  if (!file || fwrite(out, out_bytes, samples, file) != (size_t)samples || fclose(file)) return 103;
  free(in);
  free(out);
  free(other);
  return first_code;
}
"""
# Four threads, each with five samples of twenty, many times.
THREADS = r"""
#define ONE_IMPLEMENTATION
#include "one.h"
#include <pthread.h>
static float in[20][13], out[20][3];
static one_model *model;
static void *work(void *argument) {
  int first = (int)(intptr_t)argument, code = 0;
  float other[5][3];
  const void *inputs[ONE_INPUTS] = {in[first]};
  void *outputs[ONE_OUTPUTS] = {out[first], other}, *workspace = NULL;
  if (one_allocate(model, ONE_WORKSPACE, &workspace)) return fputs(one_message(), stderr), (void *)&model;
  for (int i = 0; i < 15 && !code; i++) code = one_run(model, inputs, outputs, 5, workspace, ONE_WORKSPACE);
  if (code) fprintf(stderr, "%d: %s", code, one_message());
  one_release(model, workspace);
  return code ? (void *)&model : NULL;
}
int main(void) {
  pthread_t thread[4];
  FILE *file = fopen("in.raw", "rb");
  int bad = 0;
  if (!file || fread(in, sizeof in, 1, file) != 1 || fclose(file)) return 2;
  if (one_load(&model, "one.ptx", NULL, 0)) return fputs(one_message(), stderr), 3;
  for (int i = 0; i < 4; i++) bad += pthread_create(&thread[i], NULL, work, (void *)(intptr_t)(5 * i)) != 0;
  for (int i = 0; i < 4; i++) {
    void *result = NULL;
    bad += pthread_join(thread[i], &result) != 0 || result != NULL;
  }
  one_free(model);
  file = fopen("out.raw", "wb");
  return bad || !file || fwrite(out, sizeof out, 1, file) != 1 || fclose(file) ? 4 : 0;
}
"""
# Two inputs of four are needed, in two calls of different sizes.
MANY = r"""
#define MANY_IMPLEMENTATION
#include "many.h"
int main(void) {
  static int32_t tokens[4][8], lengths[4];
  static float out[4][5];
  const void *inputs[MANY_INPUTS] = {tokens, NULL, lengths, NULL};
  void *outputs[MANY_OUTPUTS] = {out}, *workspace;
  many_model *model;
  FILE *file = fopen("tokens.raw", "rb");
  if (!file || fread(tokens, sizeof tokens, 1, file) != 1) return 2;
  fclose(file);
  file = fopen("lengths.raw", "rb");
  if (!file || fread(lengths, sizeof lengths, 1, file) != 1) return 3;
  fclose(file);
  if (many_load(&model, "many.ptx", "many.weights", 0) || many_allocate(model, MANY_WORKSPACE, &workspace)) return fputs(many_message(), stderr), 4;
  if (many_run(model, inputs, outputs, 4, workspace, MANY_WORKSPACE)) return fputs(many_message(), stderr), 5;
  for (int i = 0; i < 20; i++) printf("%.9g\n", out[i / 5][i % 5]);
  inputs[2] = NULL;
  if (many_run(model, inputs, outputs, 4, workspace, MANY_WORKSPACE) != -1) return 6;
  tokens[3][7] = 128;
  inputs[2] = lengths;
  if (many_run(model, inputs, outputs, 4, workspace, MANY_WORKSPACE) != 1) return 7;
  if (many_run(model, inputs, outputs, 3, workspace, MANY_WORKSPACE)) return 8;
  many_release(model, workspace);
  many_free(model);
  return 0;
}
"""


class OnFakeDriver(unittest.TestCase):
    """Deploys models, and builds and runs the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(self.path("driver"))
        os.symlink(os.path.join(FAKE, "libfake_cuda.so"), self.path("driver", "libcuda.so.1"))
        random = numpy.random.default_rng(1)
        for name, shape in ("x", (23, 13)), ("y", (23, 3)), ("s", (23, 7, 13)), ("i", (7, 4, 9, 10)):
            numpy.save(self.path(name + ".npy"), random.standard_normal(shape, dtype=numpy.float32))
        numpy.save(self.path("t.npy"), random.integers(0, 29, (23, 12), dtype=numpy.int32))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def ft(self, *arguments, **options):
        return support.run("ftrun", *arguments, cwd=self.folder, **options)

    def sh(self, *command, check=True):
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return done

    def deployed(self, name, text, *flags, gpu=()):
        self.write(name + ".ft", text)
        self.ft(name + ".ft", "--steps", 6, "--save", name + ".safetensors", *flags)
        self.ft("deploy", name + ".ft", "--weights", name + ".safetensors", "-o", name + ".ptx", *gpu, *flags)
        upper = name.upper()
        program = re.sub(r"\bP_", upper + "_", PROGRAM.replace("DEPLOYED.h", name + ".h"))
        self.write("main.c", re.sub(r"\bp_", name + "_", program))
        self.name = name

    def build(self, compiler=COMPILERS[0]):
        self.sh(*compiler, *STRICT, "main.c", "-ldl", "-o", "program")

    def environment(self, **fake):
        return {"LD_LIBRARY_PATH": self.path("driver"), "ASAN_OPTIONS": "detect_leaks=0", "FT_FAKE_CUDA_REPORT": self.path("report"),
                **{f"FT_FAKE_CUDA_{name}": str(value) for name, value in fake.items()}}

    def start(self, given, row, samples, which=0, mode="host", **fake):
        given.tofile(self.path("in.raw"))
        return subprocess.run([self.path("program"), self.name + ".ptx", "in.raw", "out.raw", str(samples), str(given[0].nbytes), str(row), str(which), mode],
                              cwd=self.folder, env=self.environment(**fake), capture_output=True, text=True, errors="replace")

    def run_program(self, given, want, code=0, **options):
        if code == 0 and os.path.exists(self.path("out.raw")):
            os.unlink(self.path("out.raw"))
        done = self.start(given, want[0].nbytes, len(given), **options)
        self.assertEqual(done.returncode, code, done.stderr[-2000:])
        return numpy.fromfile(self.path("out.raw"), want.dtype).reshape(want.shape) if code == 0 else done.stderr

    def compare(self, name, text, data, input_, output, *flags, gpu=(), which=0, compilers=COMPILERS[:1], rtol=2e-5, atol=2e-6, modes=("host", "device")):
        """The C program with the simulator below it, and ftrun predict of the deployed file there: the same bits; and of the CPU."""
        self.deployed(name, text, *flags, gpu=gpu)
        predict = lambda model, out, *more: self.ft("predict", model, "--weights", name + ".safetensors", "--input", f"{input_}={data}", "--output",
                                                    f"{output}={out}", *more)
        predict(name + ".ft", "want.npy", *flags)
        predict(name + ".ptx", "sim.npy", "--device", "sim")
        given, want, sim = (numpy.load(self.path(file)) for file in (data, "want.npy", "sim.npy"))
        numpy.testing.assert_allclose(sim, want, rtol=rtol, atol=atol)
        self.assertGreater(numpy.abs(want).max(), 0)
        for compiler in compilers:
            self.build(compiler)
            for mode in modes:
                self.assertEqual(self.run_program(given, want, which=which, mode=mode).tobytes(), sim.tobytes(), (compiler, mode))
        return given, want, sim


class DeployPtx(OnFakeDriver):
    def test_mlp(self):
        given, want, sim = self.compare("one", mlp("One", 40), "x.npy", "x", "z", compilers=COMPILERS + [SANITIZED], modes=("host", "device", "graph", "memory"))
        self.assertEqual(self.sh("nm", "--defined-only", "--extern-only", "program").stdout.count(" T one_"), 9)

    @unittest.skipIf(support.IS_SANITIZED, "ThreadSanitizer cannot load a driver that has AddressSanitizer")
    def test_threads(self):
        """Several threads call at once, each with a workspace of its own."""
        self.deployed("one", mlp("One", 40))
        self.ft("predict", "one.ptx", "--weights", "one.safetensors", "--input", "x=x.npy", "--output", "z=z.npy", "--device", "sim")
        numpy.load(self.path("x.npy"))[:20].tofile(self.path("in.raw"))
        self.write("threads.c", THREADS)
        self.sh("clang-19", "-std=c11", "-g", "-fsanitize=thread", *STRICT, "threads.c", "-ldl", "-lpthread", "-o", "program")
        done = subprocess.run([self.path("program")], cwd=self.folder, env=self.environment(SEED=5), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(numpy.fromfile(self.path("out.raw"), "f4").tobytes(), numpy.load(self.path("z.npy"))[:20].tobytes())

    def test_every_batch(self):
        """One sample, an odd number of them, and all."""
        text = mlp("One", 40).replace("BatchNorm", "LayerNorm")
        self.compare("one", text, "x.npy", "x", "p", "--set", "train.batch=1", which=1)
        given, want, _ = self.compare("one", text, "x.npy", "x", "p", "--set", "train.batch=23", which=1)
        for samples in 1, 22:
            for mode in "host", "device":
                have = self.run_program(given[:samples], want[:samples], which=1, mode=mode)
                numpy.testing.assert_allclose(have, want[:samples], rtol=2e-5, atol=2e-6)

    def test_convolutions(self):
        self.compare("cnn", CNN, "i.npy", "x", "z")

    def test_state_that_is_written(self):
        """With one sample the kernel of the output adds to totals, too: each call has copies of these, and none changes the weights."""
        text = CNN.replace("loss = mean(z ** 2) + mean(y ** 2)\n  output z", "e = sum(z ** 2, axis=-1)\n  loss = mean(e)\n  output z\n  output e")
        self.compare("cnn", text, "i.npy", "x", "e", "--set", "train.batch=1", which=1)
        self.assertRegex(open(self.path("cnn.h")).read(), "#define CNN_PARTS [1-9]")

    def test_gpt(self):
        given, want, _ = self.compare("gpt", GPT.replace("PRECISION", ""), "t.npy", "tokens", "logits", compilers=[SANITIZED])
        bad = given.copy()
        bad[7, 3] = 0
        zero = self.run_program(bad, want, mode="device")
        for value in (29, -1, 2**31 - 1, -(2**31)):
            bad[7, 3] = value
            for mode in "host", "device":  # no kernel reads beyond the table: that the simulator would refuse
                self.assertIn("inputs[0] has a value", self.run_program(bad, want, code=1, mode=mode))
            self.assertEqual(numpy.fromfile(self.path("out.raw"), zero.dtype).tobytes(), zero.tobytes())
        self.run_program(numpy.full_like(given, 28), want)

    def test_precisions(self):
        for name, precision, tolerance in ("half", '; precision = "bf16"', 2e-2), ("small", "; precision = fp16", 4e-3):
            text = GPT.replace("PRECISION", precision).replace("Gpt", name.capitalize())
            self.compare(name, text, "t.npy", "tokens", "logits", rtol=tolerance, atol=tolerance)
            self.ft("deploy", name + ".ft", "--weights", name + ".safetensors", "-o", "full.ptx", "--set", "train.precision=f32")
            self.assertLess(os.path.getsize(self.path(name + ".weights")), os.path.getsize(self.path("full.weights")))  # rounded copies alone

    def test_hopper(self):
        """Tensor maps, which are of the weights and of the workspace, and more shared memory than a kernel has unasked."""
        text = """model Wide(x: f32[B, 128], y: i32[B]) {
  h = relu(Linear(2048, name="one")(x))
  z = Linear(8, name="fc")(h)
  loss = mean(cross_entropy(z, y))
  output z
}
data D { train = npy("w.npy", "c.npy") }
train { model = Wide; data = D; batch = 2048; seed = 3; optimizer = sgd(lr=0.1); precision = bf16 }
"""
        numpy.save(self.path("w.npy"), numpy.random.default_rng(3).standard_normal((2100, 128), dtype="f4"))
        numpy.save(self.path("c.npy"), numpy.arange(2100, dtype="i4") % 8)
        given, want, sim = self.compare("wide", text, "w.npy", "x", "z", gpu=("--gpu", "sm_90a"), rtol=3e-2, atol=3e-2, modes=("device",))
        header = open(self.path("wide.h")).read()
        self.assertGreater(int(re.search("#define WIDE_MAPS ([0-9]+)", header)[1]), 1)
        self.assertRegex(open(self.path("wide.ptx")).read(), r"(?s)stays=1 cluster=2 early map .*cp\.async\.bulk\.tensor")
        for processors in (1, 3):  # where fewer blocks fit than the launch has, whole clusters of them run
            numpy.testing.assert_array_equal(self.run_program(given, want, PROCESSORS=processors), sim)
        if self.has_ptxas():
            self.sh("ptxas", "-arch", "sm_90a", "wide.ptx", "-o", "wide.cubin")
        for options, code, said in ((dict(CC=80), 204, "compiled for sm_90a, and this GPU is sm_80"), (dict(CC=100), 204, "compiled for sm_90a, and this GPU is sm_100"),
                                    (dict(SHARED=50000), 204, "bytes of shared memory for a block, and this GPU has 50000"),
                                    (dict(VERSION=11080), 203, "for CUDA 11.8, and the model needs one for 12.0 or newer")):
            self.assertIn(said, self.run_program(given, want, code=code, **options))
        os.unlink(self.path("driver", "libcuda.so.1"))
        os.symlink(os.path.join(FAKE, "libfake_cuda_11.so"), self.path("driver", "libcuda.so.1"))
        self.assertIn("too old: it lacks cuTensorMapEncodeTiled", self.run_program(given, want, code=203))

    def has_ptxas(self):
        return subprocess.run(["which", "ptxas"], capture_output=True).returncode == 0

    def test_recurrent(self):
        self.compare("lstm", vectors("Lstm", "T=7, I=13", "s.npy", 'h, s, c = LSTM(11, num_layers=2, name="l")(x)\n  z = Linear(3, name="b")(h[:, -1])'),
                     "s.npy", "x", "z")

    def test_quantised(self):
        """Weights that are rounded to 4 bits alone, with rows of inputs, and to 8 bits with the inputs: integers."""
        body = """h = relu(QuantLinear(70, bits=4, input_bits=none, name="a")(x))
  h = relu(QuantLinear(48, bits=4, group=14, dynamic=true, name="b")(h))
  z = QuantLinear(3, bits=8, name="c")(h)"""
        self.compare("rnd", vectors("Rnd", "13", "x.npy", body), "x.npy", "x", "z")

    def test_rounded(self):
        """Of products by rounded weights the file has 4 or 8 bits for each weight (groups have a multiple of 16 inputs there) and their scales."""
        body = """h = relu(QuantLinear(200, bits=4, input_bits=none, group=60, name="b")(relu(Linear(300, name="a")(x))))
  z = QuantLinear(3, input_bits=none, name="c")(h)"""
        self.compare("rnd", vectors("Rnd", "13", "x.npy", body), "x.npy", "x", "z")
        packed = 13 * 5 * (64 * 16 // 2 + 16 * 4) + 7 * 32 * 16 + 16 * 4  # tiles of 16 outputs by groups, and by 32 inputs
        size = os.path.getsize(self.path("rnd.weights"))
        self.assertLess(size, packed + 4 * (300 * 14 + 200 + 3) + 10000)

    def test_sparse(self):
        """Of weights that a training has pruned to two of four the file has these and their places: 1152 bytes for 16 outputs and 64 inputs; not of one of 13 inputs."""
        body = 'z = Linear(3, name="c")(relu(Linear(320, name="b")(relu(Linear(256, name="a")(x)))))'
        text = vectors("Two", "13", "x.npy", body).replace("train {", 'train { precision = bf16; prune = magnitude(structure="2:4", begin=1)\n', 1)
        self.compare("two", text, "x.npy", "x", "z", rtol=2e-2, atol=2e-2, modes=("host", "graph"))
        self.assertRegex(open(self.path("two.ptx")).read(), "mma.sp.sync")
        self.assertLess(os.path.getsize(self.path("two.weights")), 1152 * (20 * 4 + 5) + 2 * 256 * 13 + 4 * (256 + 320 + 3) + 4000)

    def test_large_weights(self):
        """More than the 4 MiB that are read at a time."""
        text = """model Table(t: i32[B, 4], y: i32[B, 4]) {
  z = Linear(3, name="l")(flatten(Embedding(50000, 32, name="e")(t), from=1))
  loss = mean(z ** 2) + 0 * mean(f32(y))
  output z
}
data D { train = npy("u.npy", "u.npy") }
train { model = Table; data = D; batch = 5; optimizer = sgd(lr=0.1) }
"""
        numpy.save(self.path("u.npy"), numpy.random.default_rng(5).integers(0, 50000, (23, 4), dtype="i4"))
        self.compare("table", text, "u.npy", "t", "z")

    def test_several_inputs(self):
        """Two that are needed and two that are not, of integers with bounds; the model has a step for each of several lengths."""
        import json
        from deploy import LENGTHS
        self.write("d.jsonl", "".join(json.dumps({"text": "abcdefgh"[: 2 + i % 7], "y": i % 3}) + "\n" for i in range(24)))
        self.deployed("many", LENGTHS)
        random = numpy.random.default_rng(4)
        numpy.save(self.path("lengths.npy"), random.integers(1, 9, 4, dtype=numpy.int32))
        numpy.save(self.path("tokens.npy"), random.integers(0, 128, (4, 8), dtype=numpy.int32))
        self.ft("predict", "many.ft", "--weights", "many.safetensors", "--input", "t=tokens.npy", "--input", "l=lengths.npy", "--output", "p=p.npy")
        self.write("many.c", MANY)
        self.sh(*SANITIZED, *STRICT, "many.c", "-ldl", "-o", "program")
        numpy.load(self.path("tokens.npy")).tofile(self.path("tokens.raw"))
        numpy.load(self.path("lengths.npy")).tofile(self.path("lengths.raw"))
        done = subprocess.run([self.path("program")], cwd=self.folder, env=self.environment(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        have = numpy.float32(done.stdout.split()).reshape(4, 5)
        numpy.testing.assert_allclose(have, numpy.load(self.path("p.npy")), rtol=2e-5, atol=2e-6)

    def test_compilers(self):
        """The header is C99, C11 and C++11, and two models go into one program."""
        self.deployed("two", mlp("Two", 24))
        self.deployed("one", mlp("One", 40))
        self.write("all.c", '#define ONE_IMPLEMENTATION\n#define TWO_IMPLEMENTATION\n#include "one.h"\n#include "two.h"\n#include "one.h"\n')
        os.symlink(self.path("all.c"), self.path("all.cpp"))
        for command in (["gcc", "-std=c99"], ["gcc", "-std=c17", "-Wpedantic"], ["clang-19", "-std=c11"], ["g++", "-std=c++11", "-Wpedantic"],
                        ["g++", "-std=c++20"], ["clang++-19", "-std=c++17"]):
            self.sh(*command, *STRICT, "-c", "all.cpp" if "++" in command[0] else "all.c", "-o", "all.o")
        names = set(re.findall(r" T (?!one_|two_)(\w+)", self.sh("nm", "--extern-only", "all.o").stdout))
        self.assertEqual(names, set())

    def test_failures(self):
        given, want, _ = self.compare("one", mlp("One", 40), "x.npy", "x", "z", compilers=[SANITIZED], modes=["host"])
        run = lambda code, **options: self.run_program(given, want, code=code, **options)
        self.assertIn("finds no GPU", run(204, COUNT=0))
        self.assertIn("for CUDA 10.2, and the model needs one for 11.1 or newer", run(203, VERSION=10020))
        self.assertIn("compiled for sm_80, and this GPU is sm_75", run(204, CC=75))
        self.assertIn("the weights: CUDA_ERROR_OUT_OF_MEMORY", run(206, MEMORY=1000))
        self.assertIn("ptxas error   : no way", run(202, JIT="no way"))
        self.assertIn("GPU", run(202, LOST_AFTER=2))
        self.assertIn("CUDA error 46", run(202, BAD=0))
        os.rename(self.path("driver"), self.path("gone"))
        self.assertIn("no NVIDIA driver", run(203))
        os.mkdir(self.path("driver"))
        self.sh("gcc", "-shared", "-x", "c", "/dev/null", "-o", "driver/libcuda.so.1")
        self.assertIn("too old: it lacks cuInit", run(203))

    def test_damaged_files(self):
        given, want, sim = self.compare("one", mlp("One", 40), "x.npy", "x", "z", compilers=[SANITIZED], modes=["host"])
        for file in "one.ptx", "one.weights":
            whole = open(self.path(file), "rb").read()
            places = [0, 8, 16, 24, 32, 64, 65, 500, len(whole) // 2, len(whole) - 1]
            damaged = [whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :] for at in places]
            damaged += [b"", whole[:63], whole[:64], whole[:-1], whole + b"\0", whole[:64] + b"\xff" * (len(whole) - 64), b"\xff" * len(whole)]
            damaged += [whole[:16] + n.to_bytes(8, "little") + whole[24:] for n in (0, 2**63, 2**64 - 1)] if file == "one.weights" else []
            for bytes_ in damaged:
                with open(self.path(file), "wb") as out:
                    out.write(bytes_)
                for mode in "host", "memory":
                    said = self.run_program(given, want, code=205, mode=mode)
                    self.assertRegex(said, r"^-5: .*(damaged|cut off|belongs|another model|no weights)")
            os.unlink(self.path(file))
            self.assertIn(f"there is no file that can be read: {file}", self.run_program(given, want, code=205))
            with open(self.path(file), "wb") as out:
                out.write(whole)
        self.ft("one.ft", "--steps", 9, "--save", "more.safetensors")
        header, before = open(self.path("one.h")).read(), open(self.path("one.weights"), "rb").read()
        self.ft("deploy", "one.ft", "--weights", "more.safetensors", "-o", "one.ptx")  # other weights only: the program stays
        self.assertTrue(open(self.path("one.h")).read() == header)
        self.assertFalse(open(self.path("one.weights"), "rb").read() == before)
        self.assertFalse(numpy.array_equal(self.run_program(given, want), sim))
        self.ft("deploy", "one.ft", "--weights", "more.safetensors", "-o", "one.ptx", "--set", "train.batch=4")  # another model
        self.assertIn("belongs to one.h", self.run_program(given, want, code=205))

    def test_transposed(self):
        """What a .so cannot have: on a GPU it is a kernel."""
        text = """model Up(x: f32[B, 4, 9, 10]) {
  y = ConvTranspose2d(4, 3, stride=2, name="c")(Conv2d(4, 3, groups=2, dilation=2, padding=2, name="g")(x))
  loss = mean(y ** 2)
  output y
}
data D { train = npy("i.npy") }
train { model = Up; data = D; batch = 2; optimizer = sgd(lr=0.1) }
"""
        self.compare("up", text, "i.npy", "x", "y", modes=["device"])

    def test_document(self):
        text = open(os.path.join(support.ROOT, "docs", "deploy.md")).read().split("## As PTX for a GPU")[1].split("\n## ")[0]
        (program,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
        commands = [line.split() for line in re.findall(r"^    (.*)$", text.split("```")[0], re.M)]
        self.assertEqual([command[0] for command in commands], ["ftrun", "gcc"])
        numpy.save(self.path("image.npy"), numpy.zeros((1, 28, 28), numpy.uint8))
        tensors = support.write_example_mlp(self.path("mlp.safetensors"))
        self.write("gpu.c", program)
        self.ft(*[word.replace("examples/", support.EXAMPLES + "/") for word in commands[0][1:]])
        self.sh(*(SANITIZED if support.IS_SANITIZED else commands[1][:1]), *commands[1][1:])
        done = subprocess.run([self.path("gpu")], cwd=self.folder, env=self.environment(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.ft("predict", "mlp.ptx", "--weights", "mlp.safetensors", "--input", "image=image.npy", "--output", "logits=logits.npy", "--device", "sim")
        self.assertEqual(numpy.float32(done.stdout.split()).tolist(), numpy.load(self.path("logits.npy"))[0].tolist())
        relu = lambda value: numpy.maximum(value, 0)
        layer = lambda name, value: tensors[name + ".weight"].astype(float) @ value + tensors[name + ".bias"]
        source = open(os.path.join(support.EXAMPLES, "fashion_mlp.ft")).read()
        mean, deviation = map(float, re.search(r"([0-9.]+)\) */ *([0-9.]+)", source).groups())
        x = numpy.full(784, -mean / deviation)
        numpy.testing.assert_allclose(numpy.float32(done.stdout.split()), layer("fc3", relu(layer("fc2", relu(layer("fc1", x))))), rtol=1e-4, atol=1e-5)

    def refuse(self, code, *arguments, text):
        done = self.ft("deploy", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("no.")], [])

    def test_files(self):
        self.deployed("one", mlp("One", 40))
        whole = {name: open(self.path(name), "rb").read() for name in ("one.ptx", "one.h", "one.weights")}
        entries = re.findall(r"\.entry (\w+)", whole["one.ptx"].decode())
        self.assertGreaterEqual(set(entries), set(re.search(r"one_kernels\[\] = {([^}]*)}", whole["one.h"].decode())[1].replace('"', "").replace(",", " ").split()))  # evaluation has the loss's, too
        support.run("ftc", "one.ft", "-o", "training.ptx", cwd=self.folder)
        self.assertLess(len(entries), open(self.path("training.ptx")).read().count(".entry "))
        support.run("ftc", "one.ft", "--inference", "-o", "inference.ptx", cwd=self.folder)
        self.ft("deploy", "one.ft", "--weights", "one.safetensors", "-o", "one.ptx")
        self.assertTrue(whole == {name: open(self.path(name), "rb").read() for name in whole})
        self.ft("deploy", "inference.ptx", "--weights", "one.safetensors", "-o", "one.ptx")
        self.assertTrue(open(self.path("inference.ptx")).read() == open(self.path("one.ptx")).read())
        self.assertTrue(whole["one.weights"][64:] == open(self.path("one.weights"), "rb").read()[64:])
        if self.has_ptxas():
            for arch in "sm_80", "sm_90":
                self.sh("ptxas", "-arch", arch, "one.ptx", "-o", "one.cubin")
        self.assertIn("model", self.ft("info", "one.ptx").stdout)
        self.assertIn("loss", self.ft("eval", "one.ptx", "--weights", "one.safetensors", "--split", "train", "--device", "sim").stdout)
        for command in ["one.ptx"], ["bench", "one.ptx"]:
            self.assertIn("for inference", self.ft(*command, "--device", "sim", check=False).stderr)
        weights, out = ("--weights", "one.safetensors"), ("-o", "no.ptx")
        self.ft("deploy", "one.ft", *weights, "-o", "cpu.so", env={"FT_CUDA_LIBRARY": os.path.join(FAKE, "libfake_cuda.so")})  # with a GPU, too
        support.run("ftc", "one.ft", "--inference", "-o", "inference.so", cwd=self.folder)
        self.refuse(1, "inference.so", *weights, *out, text="inference.so is compiled for the CPU, and -o no.ptx is for a GPU; `ftrun deploy")
        for ending in ".so", ".c", ".onnx":
            self.refuse(1, "inference.ptx", *weights, "-o", "no" + ending, text="inference.ptx is compiled for a GPU, and -o no")
        self.refuse(1, "training.ptx", *weights, *out, text="training.ptx is compiled for training; ")
        self.refuse(1, "inference.ptx", *weights, "-o", 'no".ptx', text="its name (-o) has no quotes")
        self.refuse(2, "one.ft", *weights, "-o", "no.so", "--gpu", "sm_80", text="--gpu sm_80 is for a .ft file that becomes a .ptx")
        self.refuse(2, "inference.ptx", *weights, *out, "--gpu", "sm_80", text="--gpu sm_80 is for a .ft file")
        self.refuse(2, "one.ft", *weights, *out, "--gpu", "sm_12", text="unknown GPU 'sm_12'")
        self.refuse(1, "inference.ptx", *weights, "-o", "nowhere/no.ptx", text="nowhere/no.h")
        self.assertIn("one.h and no.weights (nothing", self.ft("deploy", "inference.ptx", *weights, *out, "--dry-run").stdout.replace("no.h", "one.h"))
        self.assertFalse(os.path.exists(self.path("no.ptx")) or os.path.exists(self.path("no.weights")))


if __name__ == "__main__":
    support.main()
