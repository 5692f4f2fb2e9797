/* ftc_report: see ftc_report.h. */
#include "tools/ftc_report.h"
#include "base/text.h"
#include "passes/memory_report.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void report_ops(FILE *out) {
  static const char *const class_text[] = {"leaf",   "pointwise", "reduce", "contract",
                                           "window", "move",      "struct"};
  static const char *const gradient[] = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, ...) #gradient,
#include "ir/ops.def"
#undef OP
  };
  fprintf(out, "%-18s %-10s %-8s %s\n", "op", "class", "inputs", "gradient");
  for (int i = 0; i < OP_COUNT; i++) {
    const OpInfo *info = &op_info[i];
    char inputs[32];
    if (info->max_inputs < 0)
      snprintf(inputs, sizeof inputs, "%d..", info->min_inputs);
    else
      snprintf(inputs, sizeof inputs, "%d", info->max_inputs);
    fprintf(out, "%-18s %-10s %-8s %s\n", info->text, class_text[info->op_class], inputs,
            gradient[i]);
  }
}

int report_memory(const Program *program, const char *svg_path, FILE *out) {
  if (!svg_path) {
    MemoryReport report = memory_report(program, program->arena);
    memory_report_print(&report, out);
    return 0;
  }
  char *bytes = NULL;
  size_t count = 0;
  FILE *file = open_memstream(&bytes, &count);
  if (!file) return 3;
  memory_report_svg(program, program->arena, file);
  fclose(file);
  int error = 0;
  if (!strcmp(svg_path, "svg"))
    fwrite(bytes, 1, count, out); /* checked at the end of main */
  else
    error = text_write_file(svg_path, bytes, count);
  free(bytes);
  if (error) fprintf(stderr, "ftc: cannot write %s: %s\n", svg_path, text_error(error));
  return error ? 3 : 0;
}

/* ── rows of a table ─────────────────────────────────────────────────────────────────────────── */
static void print_columns(const char *first, FILE *out) {
  fprintf(out, "%6s %12s %12s %12s %12s %12s %12s %12s\n", first, "parameters", "gradients",
          "states", "gathered", "activations", "temporaries", "total");
}

static void print_row(const MemoryReport *report, int number, FILE *out) {
  char text[32];
  const int64_t *bytes = report->bytes;
  const int64_t columns[] = {bytes[MEMORY_PARAMS] + bytes[MEMORY_FROZEN] + bytes[MEMORY_NARROW],
                             bytes[MEMORY_GRADS],
                             bytes[MEMORY_OPTIMIZER] + bytes[MEMORY_STATE],
                             bytes[MEMORY_GATHERED],
                             bytes[MEMORY_KEPT],
                             bytes[MEMORY_TEMPORARY] + bytes[MEMORY_GAPS],
                             report->total};
  fprintf(out, "%6d", number);
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    fprintf(out, " %12s", memory_human(columns[i], text));
  fprintf(out, "\n");
}

void report_memory_by_stage(const Program *stages, int count, FILE *out) {
  int largest = 0;
  int64_t most = 0;
  char text[32];
  fprintf(out, "memory of a rank by stage (distributed.pipeline)\n");
  print_columns("stage", out);
  for (int i = 0; i < count; i++) {
    MemoryReport report = memory_report(&stages[i], stages[i].arena);
    print_row(&report, stages[i].stage, out);
    if (report.total > most) most = report.total, largest = stages[i].stage;
  }
  fprintf(out, "stage %d needs most, %s; --stage %d shows what for\n", largest,
          memory_human(most, text), largest);
}

/* ── distributed.zero ───────────────────────────────────────────────────────────────────────── */
/* What a rank needs at another level, of several stages the one that needs most; what is wrong with that is one line of `why`. */
static bool compile_at(const ReportInput *input, Arena *arena, int64_t ranks, int level,
                       MemoryReport *out, FILE *why) {
  Program program = {0};
  int count = input->frontend->set_count;
  const char **sets = ARENA_ARRAY(arena, const char *, count + 2);
  for (int i = 0; i < count; i++) sets[i] = input->frontend->sets[i];
  sets[count] = arena_printf(arena, "distributed.data=%lld", (long long)ranks);
  sets[count + 1] = arena_printf(arena, "distributed.zero=%d", level);
  FrontendOptions frontend = *input->frontend;
  frontend.sets = sets;
  frontend.set_count = count + 2;
  PassOptions passes = {.disable = input->passes->disable, .verify = input->passes->verify,
                        .multiplies_float8 = input->passes->multiplies_float8};
  Diag diag;
  diag_init(&diag, arena, why);
  if (!frontend_compile(arena, &diag, input->path, &frontend, &program) || diag.errors)
    return false;
  int stages = (int)setting_pipeline(program.settings);
  *out = (MemoryReport){0};
  for (int s = 0; s < stages; s++) {
    Program stage = stages > 1 ? frontend_stage(&program, s) : program;
    if (!passes_run(&stage, &diag, &passes, input->for_gpu) || diag.errors) return false;
    MemoryReport report = memory_report(&stage, arena);
    if (report.total > out->total) *out = report;
  }
  return true;
}

void report_memory_by_zero(const ReportInput *input, int64_t ranks, FILE *out) {
  fprintf(out, "\nmemory of one of %lld ranks that share a batch, by distributed.zero\n",
          (long long)ranks);
  print_columns("zero", out);
  for (int level = 0; level <= 3; level++) {
    Arena *arena = arena_new();
    MemoryReport report;
    char *bytes = NULL;
    size_t count = 0;
    FILE *why = open_memstream(&bytes, &count);
    bool is_good = why && compile_at(input, arena, ranks, level, &report, why);
    if (why) fclose(why);
    if (is_good) {
      print_row(&report, level, out);
    } else {
      const char *error = bytes ? strstr(bytes, "error: ") : NULL;
      int length = error ? (int)strcspn(error + 7, "\n") : 0;
      fprintf(out, "%6d %.*s\n", level, length, error ? error + 7 : "");
    }
    free(bytes);
    arena_free(arena);
  }
}

void report_taps(const Program *program, FILE *out) {
  for (int i = 0; i < program->taps.count; i++) {
    const LayerTap *tap = &program->taps.at[i];
    fprintf(out, "tap %s %s %d", tap->path, tap->block, tap->number);
    const int64_t *const pairs[] = {tap->stride, tap->padding, tap->dilation};
    for (int k = 0; k < 3; k++) fprintf(out, " %lld %lld", (long long)pairs[k][0], (long long)pairs[k][1]);
    fprintf(out, " %lld\n", (long long)tap->groups[0]);
  }
  for (int i = 0; i < program->folds.count; i++) {
    const TapFold *fold = &program->folds.at[i];
    fprintf(out, "fold %s", fold->path);
    for (int k = 0; !fold->why && k < fold->readers.count; k++) fprintf(out, " reader %s", fold->readers.at[k]);
    for (int k = 0; !fold->why && k < fold->weights.count; k++) fprintf(out, " weight %s %d", fold->weights.at[k].name, fold->weights.at[k].axis);
    fprintf(out, fold->why ? " none %s\n" : "\n", fold->why);
  }
  for (int i = 0; i < program->matrix_taps.count; i++) {
    const MatrixTap *tap = &program->matrix_taps.at[i];
    fprintf(out, "matrix %s %d %d\n", tap->path, tap->axis, tap->products);
  }
}
