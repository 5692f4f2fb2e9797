/* deploy_ptx: see deploy_ptx.h. */
#include "runtime/command/deploy_ptx.h"
#include "runtime/command/deploy_header.h"
#include "runtime/device/cuda/cuda_driver.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char embed_deploy_ptx_part[];

enum { HEAD_BYTES = 64, STATUS_BYTES = 64 };

/* As ftm_sum of deploy_ptx.part. */
static uint64_t ptx_sum(const char *at, size_t bytes) {
  uint64_t sum = 1;
  while (bytes) {
    uint64_t word = 0;
    size_t some = bytes < 8 ? bytes : 8;
    memcpy(&word, at, some);
    sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    sum ^= sum >> 32;
    at += some;
    bytes -= some;
  }
  return sum;
}

/* ── tables ─────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const Plan *plan;
  const Inference *inference;
  Text kernels, args, steps, maps;
  const char **kernel; /* in the order of the table */
  int kernel_count, map_count, most_args, most_maps;
  int64_t arg_count;
} PtxTables;

static const PlanStep *ptx_step(const PtxTables *t, int index) {
  return &t->inference->graph->steps.at[t->inference->steps.at[index]];
}

static int ptx_kernel(PtxTables *t, const char *name) {
  for (int i = 0; i < t->kernel_count; i++)
    if (!strcmp(t->kernel[i], name)) return i;
  text_printf(&t->kernels, "  \"%s\",\n", name);
  t->kernel[t->kernel_count] = name;
  return t->kernel_count++;
}

static void append_map(PtxTables *t, const PlanMap *map) {
  text_printf(&t->maps, "  {%d, %" PRId64 ", %d, %d, %d,", map->arg, map->offset, cuda_map_type[map->dtype], map->rank,
              cuda_map_swizzle(map->swizzle));
  const int64_t *const parts[] = {map->dim, map->stride, map->box};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < MAP_RANK; i++) text_printf(&t->maps, " %" PRId64 ",", i < map->rank ? parts[k][i] : 0);
  text_printf(&t->maps, "},\n");
  t->map_count++;
}

static Status ptx_append_step(PtxTables *t, const PlanStep *step) {
  int kind = step->kind == STEP_LAUNCH ? 0 : step->kind == STEP_COPY ? 1 : step->kind == STEP_FILL ? 2 : -1;
  if (kind < 0)
    return status_fail(STATUS_USER, "line %u, layer '%s': the step \"%s\" is none of a GPU's kernels", step->line, step->layer ? step->layer : "",
                       step->name);
  text_printf(&t->steps, "  {%d, %d, %" PRId64 ", %" PRId64 ", %d,", kind, kind ? 0 : ptx_kernel(t, step->name), step->work, t->arg_count,
              step->arg_count);
  for (int i = 0; i < 3; i++) text_printf(&t->steps, " %" PRId64 ",", step->grid[i]);
  for (int i = 0; i < 3; i++) text_printf(&t->steps, " %" PRId64 ",", step->block[i]);
  text_printf(&t->steps, " %" PRId64 ", %" PRId64 ", %" PRId64 ", %d, %d},\n", step->shared, step->stays, step->cluster, t->map_count,
              step->map_count);
  text_printf(&t->args, "  ");
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &t->inference->graph->buffers.at[step->args[i]];
    bool is_kept;
    int64_t at = inference_at(t->inference, buffer->place, buffer->offset, &is_kept);
    text_printf(&t->args, "%" PRId64 ", ", 2 * at + !is_kept);
  }
  text_printf(&t->args, "\n");
  t->arg_count += step->arg_count;
  for (int i = 0; i < step->map_count; i++) append_map(t, &step->maps[i]);
  if (step->arg_count > t->most_args) t->most_args = step->arg_count;
  if (step->map_count > t->most_maps) t->most_maps = step->map_count;
  return STATUS_OK;
}

static void append_ports(const char *name, const InferencePort *port, int count, Text *out) {
  text_printf(out, "static const int64_t ftm_%s[][%d] = {\n", name, INFERENCE_PORT);
  for (int i = 0; i < count; i++) {
    text_printf(out, "  {");
    for (int k = 0; k < INFERENCE_PORT; k++) text_printf(out, "%" PRId64 ", ", port[i].number[k]);
    text_printf(out, "},\n");
  }
  text_printf(out, "  {0, 0, 0, 0, 0, 0, 0, 0}};\n");
}

/* What each run copies of the weights to the workspace; the count. */
static int append_parts(const Inference *inference, Text *out) {
  int count = 0;
  text_printf(out, "static const int64_t ftm_part[][3] = { /* from, to, bytes */\n");
  for (const InferenceRange *range = NULL; (range = inference_next_copy(inference, range)) != NULL; count++)
    text_printf(out, "  {%" PRId64 ", %" PRId64 ", %" PRId64 "},\n", range->at, range->copy, range->bytes);
  text_printf(out, "  {0, 0, 0}};\n");
  return count;
}

static void append_arrays(PtxTables *t, Text *out) {
  Arena *scratch = arena_new();
  InferencePort *port = ARENA_ARRAY(scratch, InferencePort, t->plan->inputs.count + t->inference->graph->outputs.count + 1);
  text_printf(out, "static const char *const ftm_kernels[] = {\n%s  \"ft_deploy_check\"};\n", text_cstr(&t->kernels));
  text_printf(out, "static const int64_t ftm_args[] = {\n%s  0};\n", text_cstr(&t->args));
  text_printf(out, "static const int64_t ftm_step[][16] = {\n%s  {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};\n", text_cstr(&t->steps));
  if (t->map_count) text_printf(out, "static const int64_t ftm_map[][20] = {\n%.*s};\n", (int)t->maps.count - 2, text_cstr(&t->maps));
  inference_inputs(t->plan, t->inference, port);
  append_ports("input", port, t->plan->inputs.count, out);
  append_ports("output", port, inference_outputs(t->inference, port), out);
  text_printf(out, "#define FTM_PARTS %d\n", append_parts(t->inference, out));
  arena_free(scratch);
}

static Status ptx_append_tables(const Artifact *artifact, const Inference *inference, Text *out) {
  const Plan *plan = artifact->plan;
  PtxTables t = {.plan = plan, .inference = inference, .most_args = 1};
  t.kernel = calloc((size_t)inference->steps.count + 1, sizeof *t.kernel);
  Status status = t.kernel ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < inference->steps.count && status == STATUS_OK; i++) status = ptx_append_step(&t, ptx_step(&t, i));
  text_printf(out,
              "#define FTM_KERNELS %d\n#define FTM_STEPS %d\n#define FTM_MAPS %d\n#define FTM_MOST_ARGS %d\n#define FTM_MOST_MAPS %d\n"
              "#define FTM_WEIGHTS %" PRId64 "\n#define FTM_STATUS %" PRId64 "\n",
              t.kernel_count, inference->steps.count, t.map_count, t.most_args, t.most_maps, inference->weights, inference->workspace);
  append_arrays(&t, out);
  text_free(&t.kernels);
  text_free(&t.args);
  text_free(&t.steps);
  text_free(&t.maps);
  free(t.kernel);
  return status;
}

/* ── what the PTX needs ─────────────────────────────────────────────────────────────────────── */
/* Of CUDA, as drivers say it, 12040: 7.0 of PTX came with 11.0, 8.0 with 12.0. */
static int cuda_needed(const char *ptx) {
  int major = 0, minor = 0;
  const char *line = strstr(ptx, "\n.version ");
  if (line && sscanf(line, "\n.version %d.%d", &major, &minor) == 2) return major * 1000 + minor * 10 + 4000;
  return 0;
}

/* "sm_90a": 90, and whether it is for that very GPU. */
static Status ptx_target(const Artifact *artifact, int *number, bool *is_exact) {
  char exact = 0, more;
  int words = sscanf(artifact->plan->target_cpu, "sm_%3d%c%c", number, &exact, &more);
  *is_exact = words == 2;
  if (words == 1 || (words == 2 && exact == 'a')) return STATUS_OK;
  return status_fail(STATUS_USER, "%s is damaged: its plan is for no GPU that ft knows", artifact->path);
}

static Status append_needs(const Artifact *artifact, Text *out) {
  size_t bytes = strlen(artifact->ptx);
  int number = 0;
  bool is_exact = false;
  STATUS_TRY(ptx_target(artifact, &number, &is_exact));
  text_printf(out,
              "#define FTM_PTX_BYTES %zu\n#define FTM_PTX_SUM UINT64_C(0x%016" PRIx64 ")\n#define FTM_CUDA %d\n#define FTM_ARCH %d\n"
              "#define FTM_ARCH_IS_EXACT %d\n",
              bytes, ptx_sum(artifact->ptx, bytes), cuda_needed(artifact->ptx), number, is_exact);
  return STATUS_OK;
}

/* ── the header ─────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const char *name, *text;
} Word;

/* ftm_ and FTM_ are for the model's names, and @NAME@ is for a word's text, whose own are not looked at. */
static void append_expanded(const char *at, const char *prefix, const char *upper, const Word *word, Text *out) {
  while (*at) {
    const Word *found = NULL;
    for (const Word *w = word; w->name && !found; w++)
      if (!strncmp(at, w->name, strlen(w->name))) found = w;
    if (found) {
      text_printf(out, "%s", found->text);
      at += strlen(found->name);
    } else if (!strncmp(at, "ftm_", 4) || !strncmp(at, "FTM_", 4)) {
      text_printf(out, "%s_", *at == 'f' ? prefix : upper);
      at += 4;
    } else {
      text_append(out, at++, 1);
    }
  }
}

static void ptx_header(const Artifact *artifact, const Inference *inference, const char *name, const Text *tables, Text *out) {
  const Plan *plan = artifact->plan;
  static const Word none[] = {{NULL, NULL}};
  Text upper = {0}, ports = {0}, expanded = {0};
  char file[PATH_MAX], cuda[32], number[4][32];
  int need = cuda_needed(artifact->ptx), outputs = deploy_header_ports(plan, inference->graph, &ports);
  deploy_header_upper(inference->prefix, &upper);
  snprintf(file, sizeof file, "%.*s.h", (int)strlen(name) - 4, name);
  snprintf(cuda, sizeof cuda, "%d.%d", need / 1000, need % 1000 / 10);
  snprintf(number[0], sizeof *number, "%" PRId64, (int64_t)setting_number(plan->settings, "train.batch"));
  snprintf(number[1], sizeof *number, "%d", plan->inputs.count);
  snprintf(number[2], sizeof *number, "%d", outputs);
  snprintf(number[3], sizeof *number, "%" PRId64, inference->workspace + STATUS_BYTES);
  append_expanded(text_cstr(tables), inference->prefix, text_cstr(&upper), none, &expanded);
  const Word word[] = {{"@FILE@", name},
                       {"@HEADER@", file},
                       {"@MODEL@", plan->model},
                       {"@CUDA@", cuda},
                       {"@ARCH@", plan->target_cpu},
                       {"@PORTS@", text_cstr(&ports)},
                       {"@BATCH@", number[0]},
                       {"@INPUTS@", number[1]},
                       {"@OUTPUTS@", number[2]},
                       {"@WORKSPACE@", number[3]},
                       {"@TABLES@", text_cstr(&expanded)},
                       {NULL, NULL}};
  append_expanded(embed_deploy_ptx_part, inference->prefix, text_cstr(&upper), word, out);
  text_free(&upper);
  text_free(&ports);
  text_free(&expanded);
}

/* "ftweight", 1, the bytes, the model and the sum, in 64 bytes before the weights. */
static void add_head(const Inference *inference, uint64_t id, Text *weights) {
  uint64_t head[HEAD_BYTES / 8] = {0, 1, (uint64_t)inference->weights, id, ptx_sum(weights->at, weights->count)};
  memcpy(head, "ftweight", 8);
  Text whole = {0};
  text_append(&whole, (const char *)head, sizeof head);
  if (weights->count) text_append(&whole, weights->at, weights->count);
  text_free(weights);
  *weights = whole;
}

Status deploy_ptx(const Artifact *artifact, const Inference *inference, const char *name, Text *weights, Text *header) {
  Text tables = {0};
  Status status = ptx_append_tables(artifact, inference, &tables);
  if (status == STATUS_OK) status = append_needs(artifact, &tables);
  if (status == STATUS_OK) {
    uint64_t id = ptx_sum(text_cstr(&tables), tables.count);
    text_printf(&tables, "#define FTM_ID UINT64_C(0x%016" PRIx64 ")\n", id);
    add_head(inference, id, weights);
    ptx_header(artifact, inference, name, &tables, header);
  }
  text_free(&tables);
  return status;
}
