"""ft.h on a GPU (the driver without one, test/fake) from several threads: each call makes the device's context current, and
leaves the thread's own as it was."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import embed
import cuda
import support

THREADS = r"""
#define _GNU_SOURCE
#include "runtime/ft.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int (*get_current)(void **), (*set_current)(void *);
static FtModel *model;
static const char *artifact, *device, *weights;
static double loss[6], result;
static float in[64], out[64], weight[3];

#define CHECK(call)                                                                                \
  if (call) return fprintf(stderr, "%s: %s\n", #call, ft_error()), exit(1), NULL

static void *open_it(void *unused) {
  FtModel *none;
  (void)unused;
  if (!ft_open_with("nowhere.ptx", NULL, &none)) exit(2);
  CHECK(ft_open_with(artifact, &(FtOptions){.device = device}, &model));
  return NULL;
}
static void *init_it(void *unused) {
  (void)unused;
  CHECK(ft_set(model, "train.lr", "0.05"));
  CHECK(ft_init(model, 42));
  CHECK(ft_set(model, "train.nonsense", "1") != 1);
  return NULL;
}
static void *step_it(void *at) {
  const void *batch[] = {in, out};
  CHECK(ft_train_step(model, batch, at));
  return NULL;
}
static void *predict_it(void *unused) {
  const void *batch[] = {in, out};
  float value;
  (void)unused;
  CHECK(ft_predict(model, batch));
  CHECK(ft_read_output(model, "loss", &value, sizeof value));
  result = value;
  CHECK(ft_steps(model) != 6);
  return NULL;
}
static void *save_it(void *unused) {
  (void)unused;
  CHECK(ft_read_param(model, "w.weight", weight, sizeof weight));
  CHECK(ft_write_param(model, "w.weight", weight, sizeof weight));
  CHECK(ft_save_weights(model, weights));
  CHECK(ft_load_weights(model, weights));
  return NULL;
}
static void *close_it(void *unused) {
  (void)unused;
  ft_close(model);
  return NULL;
}

typedef struct {
  void *(*work)(void *);
  void *argument, *context;
} Job;

/* In a thread of its own, which has had a context of its own, or none. */
static void *run(void *at) {
  Job *job = at;
  void *after = NULL;
  if (get_current && set_current(job->context)) exit(3);
  job->work(job->argument);
  if (get_current && (get_current(&after) || after != job->context)) {
    fprintf(stderr, "the thread's context has changed from %p to %p\n", job->context, after);
    exit(4);
  }
  if (get_current) set_current(NULL);
  return NULL;
}

static void in_a_thread(void *(*work)(void *), void *argument, void *context) {
  pthread_t thread;
  Job job = {work, argument, context};
  if (pthread_create(&thread, NULL, run, &job) || pthread_join(thread, NULL)) exit(5);
}

int main(int argc, char **argv) { /* MODEL WEIGHTS DEVICE [DRIVER] */
  void *other = NULL;
  if (argc < 4) return 6;
  artifact = argv[1], weights = argv[2], device = argv[3];
  if (argc > 4) {
    void *driver = dlopen(argv[4], RTLD_NOW);
    if (!driver) return 7;
    int (*start)(unsigned), (*get)(int *, int), (*retain)(void **, int);
    *(void **)&start = dlsym(driver, "cuInit");
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&get_current = dlsym(driver, "cuCtxGetCurrent");
    *(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
    int gpu;
    if (start(0) || get(&gpu, 1) || retain(&other, gpu)) return 8;
  }
  for (int i = 0; i < 64; i++) in[i] = (float)(i % 7) / 7 - 0.4f, out[i] = (float)(i % 5) / 5;
  in_a_thread(open_it, NULL, other);
  in_a_thread(init_it, NULL, NULL);
  for (int i = 0; i < 6; i++) in_a_thread(step_it, &loss[i], i % 2 ? other : NULL);
  in_a_thread(predict_it, NULL, NULL);
  in_a_thread(save_it, NULL, other);
  in_a_thread(close_it, NULL, other);
  for (int i = 0; i < 6; i++) printf("%a ", loss[i]);
  printf("%a %a %a %a\n", result, weight[0], weight[1], weight[2]);
  return 0;
}
"""


class Threads(embed.Programs):
    def test_open_in_one_and_step_in_others(self):
        program, artifact = self.build(THREADS, "threads"), self.compile(embed.LINE, name="line.ptx")
        environment = {**os.environ, "FT_CUDA_LIBRARY": cuda.DRIVER, "FT_FAKE_CUDA_COUNT": "2", "FT_FAKE_CUDA_REPORT": self.path("report")}
        said = {}
        for device, more in (("sim", []), ("cuda:0", [cuda.DRIVER]), ("cuda:1", [cuda.DRIVER])):
            for plain in ("", "1"):
                done = subprocess.run([program, artifact, self.path("w.safetensors"), device, *more], env={**environment, "FT_CUDA_NO_GRAPH": plain},
                                      capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                said[device] = said.get(device, set()) | {done.stdout}
        self.assertEqual(set().union(*said.values()), said["sim"])
        self.assertEqual(len(said["sim"]), 1)
        with open(self.path("report")) as file:
            self.assertIn("\nleft 0\n", file.read())

    def test_graphs_are_there_before_the_first_step(self):
        program, artifact = self.build(THREADS, "threads"), self.compile(embed.LINE, name="line.ptx")
        environment = {**os.environ, "FT_CUDA_LIBRARY": cuda.DRIVER, "FT_FAKE_CUDA_REPORT": self.path("report")}
        subprocess.run([program, artifact, self.path("w.safetensors"), "cuda"], env=environment, check=True)
        with open(self.path("report")) as file:
            counts = dict(line.split() for line in file)
        self.assertEqual((counts["graph_make"], counts["graph_late"]), ("8", "0"))


if __name__ == "__main__":
    support.main()
