/* codegen_flash: attention and its gradient by the GPU's kernels (kernels/attention_ptx.h), as PTX
 * in the simulator with all its checks, against the interpreter: lengths around the tiles', heads
 * that share keys, masks, the causal order, heads of 1 to 128 features, in f32, tf32, f16 and bf16.
 */
#include "attention_help.h"
#include "codegen/nvptx.h"
#include "codegen/target.h"
#include "passes/attention.h"
#include "plan/plan_map.h"
#include "runtime/device/sim/sim_plan.h"
#include "sim_seeds.h"

static void run_node(SimMachine *machine, const SimModule *module, const AttentionCase *form,
                     const Graph *graph, const Node *node, const Kernel *kernel,
                     Tensor *const *values, const char *text, int orders) {
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  int operands = node->input_count, results = node_result_count(node), count = operands + results;
  SimRegion regions[16];
  _Alignas(128) uint64_t params[64];
  for (int i = 0; i < count + (kernel->workspace > 0); i++) {
    Type type = i < operands ? node->input[i]->type : node_result_type(node, i - operands);
    regions[i] = (SimRegion){"argument", NULL, i < count ? type_bytes(&type) : kernel->workspace,
                             i >= operands};
    assert_int_equal(sim_alloc(machine, regions[i].bytes, &regions[i].at), STATUS_OK);
    params[i] = (uint64_t)(uintptr_t)regions[i].at;
    if (i >= operands) continue;
    attention_write(values[node->input[i]->id], regions[i].at);
    sim_mark(machine, regions[i].at, regions[i].bytes, true);
  }
  int all = count + (kernel->workspace > 0);
  char *at[16];
  int64_t bytes[16];
  for (int i = 0; i < all; i++) {
    at[i] = regions[i].at;
    bytes[i] = regions[i].bytes;
  }
  for (int i = 0; i < kernel->launch_count; i++) {
    const KernelLaunch *from = &kernel->launch[i];
    PlanStep step = {.arg_count = all, .maps = from->maps, .map_count = from->map_count};
    sim_plan_maps(&step, params);
    SimLaunch launch = {.shared = from->shared,
                        .params = params,
                        .param_bytes = map_parameter(&step, step.map_count),
                        .regions = regions,
                        .region_count = all,
                        .label = from->name};
    memcpy(launch.grid, from->grid, sizeof launch.grid);
    memcpy(launch.block, from->block, sizeof launch.block);
    const SimKernel *entry = sim_module_kernel(module, from->name);
    assert_non_null(entry);
    sim_seeds_launch(machine, entry, &launch, at, bytes, operands, all, orders);
  }
  for (int i = 0; i < results; i++) {
    const Node *root = graph_find_root(graph, ROOT_OUTPUT, attention_results[is_grad][i]);
    attention_compare(form, regions[operands + i].at, values[root->id],
                      attention_results[is_grad][i], text);
  }
  for (int i = 0; i < all; i++) sim_free(machine, regions[i].at);
}

static void check_form(SimMachine *machine, const AttentionCase *form) {
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, stderr);
  char *text = attention_text(arena, form);
  Graph *graph;
  if (graph_parse(arena, &diag, "graph", text, &graph, 1) != 1) fail_msg("%s", text);
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, attention_leaf, arena, true, values, &diag));
  CodegenOptions options = {.target = TARGET_PTX,
                            .gpu = form->is_hopper ? "sm_90a" : NULL,
                            .disable = form->rows % 2 ? "tma" : NULL};
  Module module;
  Kernel kernel[2] = {{.launch_count = 0}, {.launch_count = 0}};
  const Node *node[2] = {NULL};
  int alias[4] = {-1, -1, -1, -1};
  assert_true(target_open(&module, arena, &diag, &options));
  module.only_tile = form->is_hopper;
  attention_nodes(graph, node);
  for (int i = 0; i < 2; i++) {
    assert_true(attention_is_whole(node[i], form->is_hopper ? ATTENTION_MOST : ATTENTION_MOST_GPU));
    assert_true(nvptx_emit(&module, node[i], i ? "backward" : "forward", NULL, alias, 0, &kernel[i]));
  }
  assert_true(target_verify(&module) && module_link(&module));
  assert_true(target_optimize(&module));
  Text assembly = {0};
  assert_true(target_emit(&module, LLVMAssemblyFile, &assembly));
  assert_true(form->is_hopper == (strstr(text_cstr(&assembly), "wgmma.mma_async") != NULL));
  SimModule *loaded;
  if (sim_module_load("flash.ptx", text_cstr(&assembly), assembly.count, &loaded) != STATUS_OK)
    fail_msg("%s", status_message());
  enum { AS_WRONG_AS_ALLOWED = 1 }; /* approximations and sums: as PTX lets hardware be */
  for (int i = 0; i < 2; i++) {
    run_node(machine, loaded, form, graph, node[i], &kernel[i], values, text,
             form->is_hopper ? 2 : 0);
    sim_machine_rounding(machine, AS_WRONG_AS_ALLOWED);
    run_node(machine, loaded, form, graph, node[i], &kernel[i], values, text, 0);
    sim_machine_rounding(machine, 0);
  }
  sim_module_free(loaded);
  text_free(&assembly);
  target_close(&module);
  arena_free(arena);
}

static void check_all(const AttentionCase *forms, size_t count) {
  SimMachine *machine;
  assert_int_equal(sim_machine_new(1, &machine), STATUS_OK);
  for (size_t i = 0; i < count; i++)
    if (help_has_its_turn((int)i)) check_form(machine, &forms[i]);
  sim_machine_free(machine);
}

/* Every unit, every size of tiles, all kinds of masks. */
static void forms(void **state) {
  (void)state;
  static const AttentionCase list[] = {
      {"f32", 2, 3, 3, 70, 70, 64, true, NULL},
      {"tf32", 2, 3, 3, 70, 70, 64, true, NULL},
      {"f16", 2, 3, 3, 70, 70, 64, true, NULL},
      {"bf16", 2, 3, 3, 70, 70, 64, true, NULL},
      {"f32", 1, 2, 2, 20, 90, 128, true, NULL},  /* the last rows of a longer text */
      {"tf32", 1, 2, 2, 90, 20, 128, true, NULL}, /* the first 70 rows see nothing */
      {"f16", 1, 2, 2, 20, 190, 128, true, NULL},
      {"bf16", 1, 2, 2, 290, 20, 128, true, NULL},
      {"f32", 2, 4, 2, 33, 65, 80, false, NULL},
      {"f16", 2, 4, 2, 33, 65, 80, false, NULL},
      {"f32", 1, 4, 1, 66, 67, 20, true, NULL},
      {"f16", 1, 4, 1, 66, 67, 20, true, NULL},
      {"bf16", 1, 6, 2, 10, 10, 1, true, NULL},
      {"f16", 2, 2, 1, 70, 66, 33, false, "bool[2,2,70,66]"},
      {"f32", 2, 2, 1, 70, 66, 32, true, "bool[1,1,70,66]"},
      {"bf16", 2, 2, 2, 10, 130, 24, false, "bool[2,1,1,130]"},
      {"f16", 2, 2, 2, 70, 70, 32, true, "f32[1,2,70,70]"},
      {"tf32", 2, 2, 1, 65, 90, 40, false, "f32[2,1,1,90]"},
      {"f16", 1, 1, 1, 1, 1, 16, true, "bool[1,1,1,1]"},
      {"bf16", 2, 4, 2, 70, 70, 24, true, NULL, false, JOINED},
      {"f32", 2, 3, 3, 33, 33, 20, true, NULL, false, JOINED},
      {"f32", 1, 2, 1, 40, 70, 64, true, NULL, false, APART, 0.9},
      {"tf32", 1, 2, 2, 70, 40, 40, false, "f32[1,2,70,40]", false, APART, 2},
      {"bf16", 1, 4, 2, 70, 70, 64, true, NULL, false, JOINED, -0.9},
      {"f16", 2, 2, 1, 40, 70, 32, false, "bool[2,1,40,70]", false, APART, -70},
      {"bf16", 1, 2, 2, 40, 70, 80, false, "f32[1,1,40,70]", false, APART, 0.9},
      /* dropout: the first head's numbers begin with a block of four, and lanes share blocks if keys are a multiple of four */
      {"bf16", 2, 4, 2, 70, 132, 64, true, NULL, false, BESIDE, 0, 0.2},
      {"tf32", 1, 5, 5, 70, 36, 40, false, "f32[1,5,70,36]", false, APART, 2, 0.5},
      {"f32", 1, 4, 1, 66, 68, 20, true, NULL, false, APART, 0, 0.1},
      {"f16", 2, 3, 3, 33, 33, 20, true, NULL, false, JOINED, -0.9, 0.3},
      {"f16", 1, 1, 1, 130, 68, 128, false, "bool[1,1,130,68]", false, APART, 0, 0.6},
  };
  check_all(list, sizeof list / sizeof *list);
}

/* Lengths up to 300, next to multiples of the tiles; the rest of the form changes along. */
static void lengths(void **state) {
  (void)state;
  static const int length[] = {1, 2, 15, 17, 31, 33, 63, 65, 127, 129, 193, 255, 300};
  static const char *const types[] = {"f16", "f32", "tf32", "f16", "bf16", "f32"};
  enum { LENGTHS = sizeof length / sizeof *length };
  AttentionCase list[LENGTHS];
  for (int i = 0; i < LENGTHS; i++)
    list[i] = (AttentionCase){types[i % 6],   1,         2,   1 + i % 2, length[i], length[i],
                              16 + i % 3 * 8, i % 3 < 2, NULL};
  check_all(list, LENGTHS);
}

/* Hopper's tensor cores: lengths around its tiles and blocks, and the same kinds of forms; with an
 * odd number of rows without tensor maps. */
static void hopper(void **state) {
  (void)state;
  static const AttentionCase list[] = {
      {"bf16", 1, 1, 1, 20, 1100, 64, false, NULL, true}, /* the ring goes round twice */
      {"f16", 1, 2, 2, 130, 130, 64, true, NULL, true},
      {"bf16", 2, 2, 1, 129, 260, 128, true, NULL, true},
      {"f16", 1, 2, 1, 130, 270, 128, false, NULL, true},
      {"f16", 1, 2, 1, 300, 60, 128, true, NULL, true}, /* some rows see nothing */
      {"f16", 1, 1, 1, 200, 600, 64, true, NULL, true},
      {"bf16", 1, 2, 2, 17, 300, 80, false, NULL, true},
      {"f16", 2, 2, 1, 70, 136, 56, false, "bool[2,2,70,136]", true},
      {"bf16", 2, 2, 2, 70, 136, 24, true, "f32[1,2,70,136]", true},
      {"f16", 1, 4, 2, 150, 150, 64, true, NULL, true, JOINED},
      {"bf16", 1, 2, 1, 35, 35, 128, true, NULL, true, JOINED}, /* one tile of each of two heads */
      {"bf16", 1, 1, 1, 1, 1, 8, true, NULL, true},
      /* whole tiles of queries, which come by tensor maps; several items of a block */
      {"bf16", 2, 4, 2, 128, 190, 64, true, NULL, true},
      {"f16", 1, 2, 2, 192, 192, 128, true, NULL, true, JOINED},
      {"bf16", 1, 3, 3, 256, 70, 96, false, NULL, true},
      {"f16", 1, 3, 3, 200, 200, 64, true, NULL, true}, /* the last section is smaller */
      {"f16", 2, 2, 1, 320, 320, 80, true, NULL, true, PARTS},
      /* capped */
      {"f16", 1, 2, 1, 130, 270, 64, true, NULL, true, APART, -0.9},
      {"bf16", 2, 2, 2, 128, 128, 128, true, NULL, true, JOINED, -2},
      {"bf16", 1, 2, 1, 200, 140, 64, false, NULL, true, APART, 0.9},
      {"f16", 1, 2, 2, 70, 136, 128, true, "f32[1,1,70,136]", true, APART, -0.9},
      {"f16", 2, 2, 1, 192, 150, 80, false, "bool[1,2,192,150]", true, APART, -70},
      /* masks of bools: 16 bytes at a time, and where keys are no multiple of 16 */
      {"bf16", 2, 2, 1, 130, 272, 64, false, "bool[2,1,1,272]", true},
      {"f16", 3, 2, 1, 70, 700, 128, true, "bool[3,1,1,700]", true},
      {"f16", 3, 2, 2, 140, 592, 64, true, "bool[3,2,1,592]", true},
      {"bf16", 1, 4, 2, 140, 144, 128, false, "bool[1,1,140,144]", true},
      {"f16", 2, 4, 2, 192, 336, 64, true, "bool[2,1,192,336]", true},
      {"bf16", 2, 2, 1, 70, 272, 80, true, "bool[1,2,70,272]", true},
      {"f16", 1, 4, 2, 160, 160, 64, true, "bool[1,4,160,160]", true, JOINED},
      {"bf16", 2, 2, 1, 144, 144, 128, false, "bool[2,1,1,144]", true, PARTS, -0.9},
      {"f16", 2, 2, 2, 128, 200, 128, true, "bool[1,1,128,200]", true, APART, 0.9},
      /* heads of more than 128 features */
      {"bf16", 1, 2, 1, 200, 250, 256, true, NULL, true},
      {"f16", 2, 2, 2, 192, 192, 256, true, NULL, true, JOINED},
      {"bf16", 1, 2, 2, 130, 320, 192, false, NULL, true},
      {"f16", 2, 2, 1, 256, 200, 144, true, NULL, true, BESIDE},
      {"bf16", 1, 1, 1, 129, 130, 136, false, NULL, true},
      {"f16", 1, 4, 2, 64, 33, 248, true, NULL, true}, /* some rows see nothing */
      {"bf16", 2, 2, 1, 150, 336, 256, false, "bool[2,1,150,336]", true},
      {"f16", 2, 2, 1, 128, 300, 256, true, "bool[2,2,1,300]", true, APART, -0.9},
      {"f16", 1, 2, 1, 192, 224, 192, false, "bool[1,2,192,224]", true, APART, -70},
      {"bf16", 3, 1, 1, 100, 700, 192, true, "bool[3,1,1,700]", true},
      {"bf16", 1, 2, 1, 140, 140, 256, false, NULL, true, PARTS, 0.9},
      {"f16", 1, 2, 2, 130, 200, 256, false, "f32[1,2,130,200]", true},
      {"bf16", 2, 2, 1, 64, 129, 256, true, "f32[2,1,1,129]", true, APART, -0.9},
      {"f16", 2, 2, 1, 192, 192, 192, true, "f32[1,1,192,192]", true, JOINED},
      /* masks that are added */
      {"bf16", 1, 2, 2, 200, 290, 64, true, "f32[1,2,200,290]", true},
      {"f16", 2, 2, 1, 192, 145, 128, false, "f32[2,1,192,145]", true},
      {"bf16", 2, 4, 2, 129, 200, 128, false, "f32[2,1,1,200]", true, APART, 0.9},
      {"f16", 1, 4, 2, 160, 160, 80, true, "f32[1,4,160,160]", true, JOINED, -2},
      {"bf16", 1, 2, 1, 70, 1, 48, false, "f32[1,2,70,1]", true},
      {"f16", 1, 2, 2, 130, 130, 64, false, "f32[1,2,130,130]", true, PARTS},
  };
  check_all(list, sizeof list / sizeof *list);
}

/* Forms drawn by chance: FT_ALL_TILES says how many. */
static void hopper_random(void **state) {
  (void)state;
  static const int features[] = {64, 128, 64, 128, 8, 48, 80, 96, 120};
  uint32_t seed = 12345;
  int count = getenv("FT_ALL_TILES") ? atoi(getenv("FT_ALL_TILES")) : 0;
  for (int i = 0; i < count; i++) {
    uint32_t draw[8];
    for (int k = 0; k < 8; k++) draw[k] = (seed = seed * 1664525 + 1013904223) >> 16;
    AttentionCase form = {draw[0] % 2 ? "f16" : "bf16",
                          1 + (int)(draw[1] % 2),
                          2,
                          1 + (int)(draw[2] % 2),
                          1 + (int)(draw[3] % 300),
                          1 + (int)(draw[4] % 300),
                          features[draw[5] % 9],
                          draw[6] % 2,
                          NULL,
                          true};
    char mask[64];
    if (draw[6] / 2 % 2) form.keys = (form.keys + 15) / 16 * 16;
    snprintf(mask, sizeof mask, "%s[%d,%d,%d,%d]", draw[7] % 3 ? "bool" : "f32",
             draw[6] / 4 % 2 ? form.batch : 1, draw[6] / 8 % 2 ? 2 : 1,
             draw[6] / 16 % 2 ? form.rows : 1, form.keys);
    if (draw[7] / 3 % 2) form.mask = mask;
    if (draw[7] % 5 == 0) {
      form.layout = JOINED;
      form.causal = true;
      form.keys = form.rows;
      form.mask = NULL;
    }
    static const double caps[] = {0, 0, 0, 0.9, -0.9, -2, -70};
    form.cap = caps[draw[1] / 2 % 7];
    printf("%s %dx%d groups %d, %d x %d x %d, causal %d, mask %s\n", form.type, form.batch,
           form.heads, form.groups, form.rows, form.keys, form.features, form.causal,
           form.mask ? form.mask : "none");
    check_all(&form, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(lengths),
                                     cmocka_unit_test(hopper), cmocka_unit_test(hopper_random)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
