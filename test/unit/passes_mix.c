/* passes_mix: samples that are mixed with each other (mixup, cutmix) and noise, which a step draws for its whole
 * batch: ranks, parts of a batch, pieces and stages train as one rank with all of it in one piece. */
#include "test/unit/ranks_help.h"

static const char *const mixes[] = {
    "model M(x: f32[B, 5], y: i32[B]) {\n"
    "  s = Linear(4, name=\"b\")(relu(Linear(7, name=\"a\")(x)))\n"
    "  loss = mean(cross_entropy(s, y, smoothing=0.1))\n"
    "  metric right = mean(f32(argmax(s, axis=-1) == y))\n}\n"
    "data D { train = npy(\"x\", \"y\") | mixup(alpha=0.4) }\n"
    "train { model = M; data = D; optimizer = adamw(lr=0.01); clip = 0.5 }\n",
    /* numbers as labels, and noise behind the mixing */
    "model M(x: f32[B, 5], y: f32[B, 3]) {\n"
    "  loss = mean(mse(Linear(3, name=\"b\")(tanh(Linear(8, name=\"a\")(x))), y))\n"
    "  metric most = max(x)\n}\n"
    "data D { train = npy(\"x\", \"y\") | mixup(alpha=2, p=0.5) | noise(sigma=0.3, clip=false) }\n"
    "train { model = M; data = D; optimizer = sgd(lr=0.1, momentum=0.9) }\n",
    /* noise in front of it, which the partner has too; convolutions; weights of classes */
    "model M(x: f32[B, 2, 4, 4], y: i32[B]) {\n"
    "  h = relu(Conv2d(6, 3, padding=1, name=\"c\")(x))\n"
    "  s = Linear(3, name=\"b\")(mean(h, axis=[2, 3]))\n"
    "  loss = mean(cross_entropy(s, y, weight=[1, 2, 0.5])) + 0.01 * sum(h * h)\n}\n"
    "data D { train = npy(\"x\", \"y\") | noise(sigma=0.2, clip=false) | mixup_or_cutmix(mixup_alpha=0.5) }\n"
    "train { model = M; data = D; optimizer = sgd(lr=0.1, momentum=0.9) }\n",
    /* a loss of one's own, mixed as a mean; labels that are made numbers */
    "model M(x: f32[B, 2, 4, 4], y: i32[B]) {\n"
    "  s = Linear(3, name=\"b\")(relu(Linear(6, name=\"a\")(flatten(x, from=1))))\n"
    "  own = mean(bce_with_logits(s[:, 0], f32(y == 1)))\n"
    "  loss = mixed(own, mean(bce_with_logits(s[:, 0], f32(partner(y) == 1)))) +\n"
    "    mean(bce_with_logits(s, one_hot(y, 3)))\n}\n"
    "data D { train = npy(\"x\", \"y\") | cutmix }\n"
    "train { model = M; data = D; optimizer = adamw(lr=0.01) }\n",
};
enum { MIXES = sizeof mixes / sizeof *mixes };

static void check(const char *source, int ranks, int parts, int zero, int tensor) {
  check_form(source, (Form){ranks, parts, zero, tensor, 1, 1});
}

static void test_as_one_batch(void **unused) {
  (void)unused;
  for (int i = 0; i < MIXES; i++)
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
      for (int parts = 1; parts <= 3; parts += 2)
        for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++)
          if (zero != 1 || parts > 1) check(mixes[i], ranks, parts, zero, 1);
}

static void test_tensor(void **unused) {
  (void)unused;
  for (int i = 0; i < MIXES; i++)
    for (pieces = 1; pieces <= 2; pieces++)
      for (int parts = 1; parts <= 3; parts += 2) {
        check(mixes[i], 1, parts, 0, 2);
        check(mixes[i], 2, parts, 3, 2);
      }
  pieces = 1;
}

static void test_pipeline(void **unused) {
  (void)unused;
  static const Form forms[] = {{1, 1, 0, 1, 2, 1}, {1, 3, 0, 1, 2, 1}, {2, 2, 0, 1, 2, 1},
                               {2, 2, 3, 1, 2, 1}};
  int made = 0;
  for (int i = 0; i < MIXES; i++)
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) made += check_form(mixes[i], forms[k]);
  assert_true(made > 8); /* where there are layers enough */
}

int main(void) {
  rows = 4;
  is_whole = true;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_one_batch),
                                     cmocka_unit_test(test_tensor),
                                     cmocka_unit_test(test_pipeline)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
