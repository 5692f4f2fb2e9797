/* Gradients of what ranks do together, against central differences (gradients_help.h). */
#include "gradients_help.h"

/* The loss is the sum of all ranks' losses, and x that of one rank. */
static void check_over(MeshAxis axis) {
#define BY(reduction)                                                                              \
  "{reduction=\"" reduction "\", %sover=\"%s\"}",                                                  \
      "{reduction=\"" reduction "\", ranks=%d, over=\"%s\"}"
  static const char *const attrs[] = {BY("sum"), BY("rmax"), BY("rmin"), "{ranks=%d, over=\"%s\"}"};
  int size = mesh_size(&mesh, axis);
  for (int i = 0; i < 7; i++) {
    char attr[96], text[512];
    bool is_gather = i == 6, is_scatter = i % 2;
    int rows = is_gather ? 12 * size : is_scatter ? 12 / size : 12;
    if (is_gather || is_scatter)
      snprintf(attr, sizeof attr, attrs[i], size, mesh_axis_text(axis));
    else
      snprintf(attr, sizeof attr, attrs[i], "", mesh_axis_text(axis));
    snprintf(text, sizeof text,
             "%%x = param {name=\"x\"} : f32[12,2]\n%%a = %s %%x %s : f32[%d,2]\n"
             "%%b = %s : f32[%d,2]\n%%y = exp %%b : f32[%d,2]",
             is_gather    ? "all_gather"
             : is_scatter ? "reduce_scatter"
                          : "all_reduce",
             attr, rows, is_gather || is_scatter ? "reshape %a" : "result %a {index=0}", rows,
             rows);
    check(text);
  }
}

static void check_same_shape(MeshAxis axis) {
  int size = mesh_size(&mesh, axis);
  const char *over = mesh_axis_text(axis);
  char text[512];
  snprintf(text, sizeof text,
           "%%x = param {name=\"x\"} : f32[12,2]\n"
           "%%a = all_to_all %%x {ranks=%d, over=\"%s\"} : f32[12,2]\n%%y = exp %%a : f32[12,2]",
           size, over);
  check(text);
  for (int root = 0; root < size; root++) {
    snprintf(text, sizeof text,
             "%%x = param {name=\"x\"} : f32[2]\n"
             "%%a = broadcast_from %%x {root=%d, over=\"%s\"} : f32[2]\n%%b = exp %%a : f32[2]\n"
             "%%y = mul %%b, %%x : f32[2]",
             root, over);
    check(text);
    int to = (root + 1) % size;
    if (to == root) continue;
    snprintf(text, sizeof text,
             "%%x = param {name=\"x\"} : f32[2]\n"
             "%%a = transfer %%x {from=%d, to=%d, over=\"%s\"} : f32[2]\n"
             "%%b = exp %%a : f32[2]\n%%y = mul %%b, %%x : f32[2]",
             root, to, over);
    check(text);
  }
}

static void over_ranks(void **state) {
  static const Mesh meshes[] = {{1, 1, 1}, {2, 1, 1}, {1, 1, 3}, {2, 1, 2}, {1, 2, 2}};
  (void)state;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    mesh = meshes[i];
    ranks = mesh_ranks(&mesh);
    for (MeshAxis axis = MESH_ALL; axis <= MESH_TENSOR; axis++) {
      check_over(axis);
      check_same_shape(axis);
    }
  }
}

/* Must be the last. */
static void every_collective_has_a_case(void **state) {
  (void)state;
  for (int op = 0; op < OP_COUNT; op++)
    if (op_has((Op)op, TRAIT_RANKS) && gradient_rule[op] && !seen[op])
      fail_msg("'%s' has a gradient and no case here", op_info[op].text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(over_ranks),
      cmocka_unit_test(every_collective_has_a_case),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
