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
