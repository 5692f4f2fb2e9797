/* simulate_mesh_choice: which mesh is chosen where what each costs is given by a formula, that a model
 * which says part of it is heeded, that the fewest micro-batches that fit are found, against a look at
 * all of them, and what the words of auto(...) mean. */
#include "simulate/auto_words.h"
#include "simulate/mesh_choice.h"
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A model: bytes of parameters and states, of a sample's activations; seconds of computing, of
 * sending for data and for each sharing of layers. */
typedef struct {
  double parameters, states, activations, compute, joins, shares, limit;
  int odd; /* tensor of this size cannot be compiled */
} Formula;

static void reckon_formula(void *user, MeshCandidate *c) {
  const Formula *f = user;
  const Mesh *m = &c->mesh;
  if (m->tensor == f->odd) {
    c->refused = "odd";
    return;
  }
  double layers = 1.0 / (m->tensor * m->pipeline);
  c->memory = f->parameters * layers / (c->zero == 3 ? m->data : 1);
  c->memory += f->states * layers / (c->zero ? m->data : 1);
  c->memory += f->activations * layers * (double)c->batch * (c->recomputes ? 0.25 : 1);
  if (c->memory > f->limit) return;
  double samples = (double)(c->batch * c->accumulate);
  c->compute = f->compute * samples * layers * (c->recomputes ? 1.3 : 1) + 1e-4 * (double)c->accumulate;
  c->exposed = (m->data > 1 ? f->joins * (1 + 0.1 * c->zero) : 0) + (m->tensor > 1 ? f->shares : 0);
  c->bubble = c->compute * (m->pipeline - 1) / (double)c->accumulate;
  c->seconds = c->compute + c->exposed + c->bubble;
}

static MeshAnswer choose(Arena *arena, Formula *f, MeshQuestion q) {
  MeshAnswer answer;
  q.arena = arena;
  q.reckon = reckon_formula;
  q.user = f;
  q.memory = f->limit;
  mesh_choose(&q, &answer);
  return answer;
}

static const MeshQuestion eight = {.ranks = 8, .local = 8, .samples = 64, .zero = -1, .may_recompute = true};

static void test_what_fits(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Formula f = {.parameters = 10, .states = 20, .activations = 1, .compute = 1e-3, .joins = 1e-3, .shares = 4e-3, .limit = 100};
  MeshAnswer answer = choose(arena, &f, eight);
  const MeshCandidate *c = &answer.candidates.at[answer.chosen];
  assert_true(c->mesh.data == 8 && c->mesh.tensor == 1 && c->zero == 0 && c->accumulate == 1 && c->batch == 8);
  f.limit = 30; /* states shared out, and all 8 samples at once */
  answer = choose(arena, &f, eight);
  c = &answer.candidates.at[answer.chosen];
  assert_true(c->mesh.data == 8 && c->zero == 1 && c->accumulate == 1);
  f.limit = 9; /* less than the parameters */
  answer = choose(arena, &f, eight);
  c = &answer.candidates.at[answer.chosen];
  assert_true(c->memory <= 9 && (c->zero == 3 || c->mesh.tensor > 1));
  f.limit = 0.5;
  answer = choose(arena, &f, eight);
  assert_int_equal(answer.chosen, -1);
  const MeshCandidate *nearest = mesh_nearest(&answer);
  for (int i = 0; i < answer.candidates.count; i++) assert_true(answer.candidates.at[i].memory >= nearest->memory);
  arena_free(arena);
}

static void test_what_is_said(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Formula f = {.parameters = 10, .states = 20, .activations = 1, .compute = 1e-3, .joins = 1e-3, .limit = 1000};
  MeshQuestion q = eight;
  q.fixed.tensor = 2;
  q.zero = 2;
  q.accumulate = 4;
  MeshAnswer answer = choose(arena, &f, q);
  assert_int_equal(answer.candidates.count, 1);
  const MeshCandidate *c = &answer.candidates.at[answer.chosen];
  assert_true(c->mesh.data == 4 && c->mesh.tensor == 2 && c->zero == 2 && c->accumulate == 4 && c->batch == 4);
  q = eight;
  q.ranks = q.local = 7; /* 64 samples are no multiple */
  q.fixed.pipeline = 1;
  f.odd = 7;
  answer = choose(arena, &f, q);
  assert_int_equal(answer.chosen, -1);
  assert_null(mesh_nearest(&answer));
  assert_string_equal(answer.candidates.at[0].refused, "7 ranks cannot share a batch of 64 samples");
  assert_string_equal(answer.candidates.at[1].refused, "odd");
  q.fixed.pipeline = 0; /* stages, then, as nothing fits without */
  answer = choose(arena, &f, q);
  c = &answer.candidates.at[answer.chosen];
  assert_true(c->mesh.data == 1 && c->mesh.pipeline == 7 && c->accumulate >= 8);
  q.ranks = 8;
  q.fixed.data = 3;
  answer = choose(arena, &f, q);
  assert_int_equal(answer.candidates.count, 0);
  arena_free(arena);
}

/* Of as many as fit, the fastest; of those within 1 % the simplest. */
static void check_chosen(const Formula *f, const MeshAnswer *answer) {
  double least = INFINITY;
  for (int i = 0; i < answer->candidates.count; i++) {
    const MeshCandidate *c = &answer->candidates.at[i];
    if (!c->refused && c->memory <= f->limit && c->seconds < least) least = c->seconds;
  }
  assert_int_equal(answer->chosen >= 0, isfinite(least));
  if (answer->chosen >= 0) assert_true(answer->candidates.at[answer->chosen].seconds <= 1.01 * least);
}

/* No candidate of the mesh and level fits with fewer micro-batches, and as much recomputed. */
static void check_fewest(Formula *f, const MeshQuestion *q, const MeshCandidate *c) {
  if (c->refused || c->memory > f->limit) return;
  for (int64_t parts = c->zero == 2 ? 2 : 1; parts < c->accumulate; parts++) {
    if (q->samples / c->mesh.data % parts) continue;
    MeshCandidate less = {.mesh = c->mesh, .zero = c->zero, .accumulate = parts, .recomputes = c->recomputes};
    less.batch = q->samples / c->mesh.data / parts;
    reckon_formula(f, &less);
    if (less.memory <= f->limit && c->mesh.pipeline == 1) fail_msg("%d parts fit, and %d are taken", (int)parts, (int)c->accumulate);
  }
}

static void test_random(void **state) {
  (void)state;
  srand(7);
  for (int round = 0; round < 2000; round++) {
    Arena *arena = arena_new();
    Formula f = {.parameters = rand() % 100, .states = rand() % 200, .activations = 1 + rand() % 20, .compute = 1e-3,
                 .joins = 1e-4 * (rand() % 100), .shares = 1e-4 * (rand() % 100), .limit = 1 + rand() % 300};
    f.odd = rand() % 4 ? 0 : 1 << rand() % 4;
    MeshQuestion q = eight;
    q.ranks = 1 << rand() % 6;
    q.samples = 1 + rand() % 512;
    q.may_recompute = rand() % 2;
    q.fixed.pipeline = rand() % 4 ? 0 : q.ranks < 2 ? 1 : 2;
    MeshAnswer answer = choose(arena, &f, q), again = choose(arena, &f, q);
    assert_int_equal(answer.chosen, again.chosen);
    check_chosen(&f, &answer);
    for (int i = 0; i < answer.candidates.count; i++) {
      const MeshCandidate *c = &answer.candidates.at[i];
      assert_int_equal(mesh_ranks(&c->mesh), q.ranks);
      if (!c->refused) assert_int_equal(c->batch * c->accumulate * c->mesh.data, q.samples);
      check_fewest(&f, &q, c);
    }
    char *bytes = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&bytes, &count);
    q.arena = arena;
    q.memory = f.limit;
    mesh_print(&q, &answer, out);
    fclose(out);
    assert_true(answer.chosen < 0 || strstr(bytes, "chosen: the fastest that fits"));
    free(bytes);
    arena_free(arena);
  }
}

static const char *words(Arena *arena, const char *text, const Cluster *given, Cluster *out) {
  return auto_words_parse(arena, text, "h100", given, out);
}

static void test_words(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Cluster c, given;
  assert_null(words(arena, "gpus=64 memory=40GiB net=200Gb", NULL, &c));
  assert_true(c.fabric.nodes == 8 && c.fabric.local == 8 && c.memory == 40 * 0x1p30);
  assert_string_equal(c.machine->name, "h100");
  assert_null(words(arena, "gpus=12", NULL, &c));
  assert_true(c.fabric.nodes == 2 && c.fabric.local == 6);
  assert_null(words(arena, "gpus=64 node=4 gpu=a100", NULL, &c));
  assert_true(c.fabric.nodes == 16 && c.fabric.local == 4);
  assert_null(words(arena, "gpus=16 gpu=cpu", NULL, &c));
  assert_true(c.fabric.nodes == 1 && c.fabric.local == 16);
  assert_null(words(arena, "gpus=any", NULL, &c));
  assert_true(c.fabric.nodes == 1 && c.fabric.local == 8);
  assert_null(cluster_parse(arena, "nodes=3 gpus=4 gpu=l40s net=50Gb", &given));
  assert_null(words(arena, "gpus=any", &given, &c));
  assert_true(c.fabric.nodes == 3 && c.fabric.local == 4 && c.fabric.network == given.fabric.network);
  static const char *const wrong[][2] = {
      {"gpus=0", "gpus=0: it takes a whole number"}, {"gpus=1e3", "gpus=1e3: it takes"}, {"gpus=8 gpus=8", "given twice"},
      {"gpus=any gpus=8", "given twice"}, {"gpus=12 node=8", "no whole machines of 8"}, {"gpus=8 nodes=2", "there is no nodes"},
      {"gpus=8 gpu=h101", "did you mean h100?"}, {"gpus=8 memory=0", "memory=0: it takes"}, {"gpus=8 gpu=", "gpu= is not known"},
      {"gpus=99999999999", "it takes"}, {"gpus", "needs a value"}, {"ranks=4", "no word of a cluster"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const char *why = words(arena, wrong[i][0], NULL, &c);
    if (!why || !strstr(why, wrong[i][1])) fail_msg("%s: '%s'", wrong[i][0], why ? why : "taken");
  }
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_fits),
      cmocka_unit_test(test_what_is_said),
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
