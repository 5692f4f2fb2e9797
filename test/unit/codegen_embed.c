/* ft.h on an artifact with train.accumulate = 3, made here by the whole compiler: three calls make
 * the update that one call on a batch three times as large makes, weighted by what counts in each
 * part; predictions in between and a new start amid a batch change nothing. */
#include "codegen/codegen.h"
#include "passes/pass.h"
#include "runtime/ft.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PARTS = 3, PART = 4, WHOLE = PARTS * PART, IN = 5, STEPS = 4 };

/* label -1 does not count: parts have 4, 2 and 1 that do */
static const char source[] = "model M(x: f32[B, I=5], label: i32[B]) {\n"
                             "  y = tanh(Linear(6, name=\"a\")(x))\n"
                             "  logits = Linear(3, name=\"b\")(y)\n"
                             "  loss = mean(cross_entropy(logits, label, ignore=-1))\n"
                             "  output logits\n}\n"
                             "data D { train = npy(\"x.npy\", \"l.npy\") }\n"
                             "train { model = M; data = D; optimizer = adamw(lr=0.05)\n"
                             "  clip = norm(0.5) }\n";
static char folder[] = "/tmp/ft_embed_XXXXXX";

static FtModel *make(const char *name, int batch, int parts) {
  Arena *arena = arena_new();
  Diag diag;
  Program program;
  Code code;
  char *path = arena_printf(arena, "%s/%s", folder, name);
  const char *sets[] = {arena_printf(arena, "train.batch=%d", batch),
                        arena_printf(arena, "train.accumulate=%d", parts)};
  FrontendOptions frontend = {.sets = sets, .set_count = 2};
  CodegenOptions codegen = {.target = TARGET_CPU};
  diag_init(&diag, arena, stderr);
  assert_true(frontend_compile_text(arena, &diag, "m.ft", source, &frontend, &program));
  assert_true(passes_run(&program, &diag, &(PassOptions){.verify = true}, false));
  assert_true(codegen_run(arena, &diag, &program, &codegen, &code));
  assert_true(codegen_write(&diag, &code, &codegen, path));
  code_free(&code);
  FtModel *model;
  if (ft_open(path, 2, &model)) fail_msg("%s", ft_error());
  unlink(path);
  arena_free(arena);
  return model;
}

static float data[STEPS][WHOLE * IN];
static int32_t label[STEPS][WHOLE];

static void fill(void) {
  static const int counted[PARTS] = {4, 2, 1};
  for (int s = 0; s < STEPS; s++)
    for (int i = 0; i < WHOLE; i++) {
      for (int k = 0; k < IN; k++) data[s][i * IN + k] = sinf((float)(s * 100 + i * 7 + k * 3));
      label[s][i] = i % PART < counted[i / PART] ? (i + s) % 3 : -1;
    }
}

static double part_step(FtModel *model, int step, int part) {
  const void *batch[] = {data[step] + part * PART * IN, label[step] + part * PART};
  double loss;
  if (ft_train_step(model, batch, &loss)) fail_msg("%s", ft_error());
  return loss;
}

static void same_params(FtModel *a, FtModel *b, double tolerance) {
  FtTensor tensor;
  float x[64], y[64];
  for (int i = 0; ft_param(a, i, &tensor) == 0; i++) {
    assert_int_equal(ft_read_param(a, tensor.name, x, (size_t)tensor.bytes), 0);
    assert_int_equal(ft_read_param(b, tensor.name, y, (size_t)tensor.bytes), 0);
    for (size_t k = 0; k < (size_t)tensor.bytes / sizeof *x; k++)
      if (!(fabs((double)x[k] - (double)y[k]) <= tolerance))
        fail_msg("%s[%zu]: %g and %g", tensor.name, k, (double)x[k], (double)y[k]);
  }
}

static void parts_are_the_whole(void **state) {
  (void)state;
  FtModel *parted = make("parted.so", PART, PARTS), *whole = make("whole.so", WHOLE, 1);
  assert_int_equal(ft_init(parted, 7), 0);
  assert_int_equal(ft_init(whole, 7), 0);
  same_params(parted, whole, 0);
  for (int step = 0; step < STEPS; step++) {
    const void *batch[] = {data[step], label[step]};
    double loss, own[PARTS];
    if (ft_train_step(whole, batch, &loss)) fail_msg("%s", ft_error());
    for (int part = 0; part < PARTS; part++) {
      assert_int_equal(ft_steps(parted), step);
      own[part] = part_step(parted, step, part);
      const void *unlabelled[] = {data[0], NULL};
      assert_int_equal(ft_predict(parted, unlabelled), 0);
    }
    assert_int_equal(ft_steps(parted), step + 1);
    assert_true(fabs(own[PARTS - 1] - loss) < 1e-6); /* the last call's is that of all */
    assert_true(fabs(own[0] - loss) > 1e-3);         /* before it a part's own */
    same_params(parted, whole, 2e-6);
  }
  ft_close(parted);
  ft_close(whole);
}

static void starts_anew_amid_a_batch(void **state) {
  (void)state;
  FtModel *a = make("a.so", PART, PARTS), *b = make("b.so", PART, PARTS);
  assert_int_equal(ft_init(a, 3), 0);
  (void)part_step(a, 1, 0);
  (void)part_step(a, 1, 1);
  assert_int_equal(ft_init(a, 9), 0);
  assert_int_equal(ft_init(b, 9), 0);
  for (int part = 0; part < PARTS; part++)
    assert_true(part_step(a, 0, part) == part_step(b, 0, part));
  same_params(a, b, 0);
  assert_int_equal(ft_steps(a), 1);
  ft_close(a);
  ft_close(b);
}

static int make_folder(void **state) {
  (void)state;
  fill();
  return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_the_whole),
                                     cmocka_unit_test(starts_anew_amid_a_batch)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
