/* ckpt_list: what is in a file of several ranks, and who writes what of it: over all ranks of a mesh each
 * element has its place in the file once, whatever is cut, shared out or lies in another order; and the list
 * of a pipeline's stages is that of one plan. */
#include "runtime/checkpoint/ckpt_file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static Arena *arena;
static uint64_t state = 1;
static int64_t below(int64_t bound) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(state >> 33) % bound;
}

static PlanTensor tensor_of(int number, int stage, const Mesh *mesh, bool is_shared) {
  PlanTensor t = {.name = arena_printf(arena, "p%d", number), .type = {DT_F32, {3, {0}}}};
  int64_t dim[3] = {1 + below(30), 1 + below(6), 1 + below(40)};
  if (number == 3) dim[0] = 700; /* several blocks */
  memcpy(t.type.shape.dim, dim, sizeof dim);
  t.stream = number;
  t.place = stage;
  int cut = (int)below(4);
  if (mesh->tensor > 1 && cut < 3)
    t.cut = (PlanCut){cut, dim[cut], mesh->tensor, dim[cut] * mesh->tensor};
  if (mesh->tensor > 1 && cut < 3 && below(3) == 0)
    t.cut.length -= below(dim[cut]); /* the last rank has less, but some */
  else if (mesh->tensor > 1 && cut < 3 && dim[cut] % 2 == 0)
    t.cut.run = dim[cut] / 2;
  if (is_shared) t.shared = mesh->data;
  if (below(2)) t.storage = (Storage){t.type.shape, {below(2) ? 2 : 0, 1, 0}};
  if (t.storage.perm[0] == 0 && t.storage.view.rank) t.storage.perm[1] = 2, t.storage.perm[2] = 1;
  return t;
}

/* Marks what a rank's share of a tensor puts into the file. */
static void mark(const PlanTensor *t, const CkptShare *share, int tensor_rank, uint8_t *marks) {
  Type held = plan_held(t);
  assert_true(share->count > 0 && share->base <= share->first);
  assert_true(share->first - share->base + share->count <= shape_elements(&held.shape));
  for (int64_t i = share->first; i < share->first + share->count; i++) {
    int64_t element = t->storage.view.rank ? storage_element(&t->storage, i) : i, run;
    int64_t at = exec_part_run(t, tensor_rank, element * 4, &run);
    assert_true(run >= 4 && (at == -1 || at % 4 == 0));
    if (at >= 0) marks[at / 4]++;
  }
}

static void each_element_once(void **unused) {
  (void)unused;
  enum { PARAMS = 12 };
  for (int trial = 0; trial < 300; trial++) {
    Mesh mesh = {1 + (int)below(4), 1 + (int)below(3), 1 + (int)below(3)};
    Plan *plans[3];
    bool is_shared = below(2) && mesh.data > 1;
    for (int p = 0; p < mesh.pipeline; p++) {
      plans[p] = ARENA_ARRAY(arena, Plan, 1);
      plans[p]->stage = p;
    }
    for (int i = 0; i < PARAMS; i++) { /* by turns, as in interleaved stages; one of them is in all */
      PlanTensor t = tensor_of(i, i % mesh.pipeline, &mesh, is_shared);
      for (int p = 0; p < mesh.pipeline; p++)
        if (i == 5 || i % mesh.pipeline == p) VEC_PUSH(arena, plans[p]->params, t);
    }
    CkptList list = ckpt_list(arena, plans, mesh.pipeline, CKPT_WEIGHTS);
    assert_int_equal(list.count, PARAMS);
    uint8_t *marks[PARAMS];
    for (int i = 0; i < PARAMS; i++) {
      Type whole = plan_whole(&list.at[i].tensor);
      char name[8];
      snprintf(name, sizeof name, "p%d", i);
      assert_string_equal(list.at[i].tensor.name, name);
      marks[i] = ARENA_ARRAY(arena, uint8_t, (size_t)shape_elements(&whole.shape));
    }
    for (int r = 0; r < mesh_ranks(&mesh); r++) {
      int tensor = mesh_index(&mesh, MESH_TENSOR, r);
      CkptSeat seat = {mesh_index(&mesh, MESH_PIPELINE, r), mesh_index(&mesh, MESH_DATA, r), mesh.data,
                       tensor};
      CkptShares shares = ckpt_shares(arena, &list, &seat);
      for (int i = 0; i < shares.count; i++)
        mark(&list.at[shares.at[i].entry].tensor, &shares.at[i], tensor, marks[shares.at[i].entry]);
    }
    for (int i = 0; i < PARAMS; i++) {
      Type whole = plan_whole(&list.at[i].tensor);
      for (int64_t k = 0; k < shape_elements(&whole.shape); k++)
        if (marks[i][k] != 1)
          fail_msg("trial %d: element %lld of p%d is written %d times", trial, (long long)k, i,
                   marks[i][k]);
    }
  }
}

/* What all ranks of data have is divided: none has much more than its part. */
static void all_write(void **unused) {
  (void)unused;
  Plan *plan = ARENA_ARRAY(arena, Plan, 1);
  int64_t all = 0, most = 0;
  for (int i = 0; i < 40; i++) {
    PlanTensor t = {.name = arena_printf(arena, "p%d", i), .stream = i};
    t.type = (Type){DT_F32, {2, {i % 3 ? 700 : 7, i % 5 ? 300 : 100}}};
    if (i % 4 == 0) t.storage = (Storage){t.type.shape, {1, 0}};
    all += type_bytes(&t.type);
    VEC_PUSH(arena, plan->params, t);
  }
  CkptList list = ckpt_list(arena, &plan, 1, CKPT_WEIGHTS);
  for (int r = 0; r < 4; r++) {
    int64_t bytes = 0;
    CkptSeat seat = {0, r, 4, 0};
    CkptShares shares = ckpt_shares(arena, &list, &seat);
    for (int i = 0; i < shares.count; i++) bytes += shares.at[i].count * 4;
    if (bytes > most) most = bytes;
  }
  assert_true(most < all * 3 / 8);
}

static int setup(void **unused) {
  (void)unused;
  arena = arena_new();
  return 0;
}
static int teardown(void **unused) {
  (void)unused;
  arena_free(arena);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_element_once),
                                     cmocka_unit_test(all_write)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
