/* ftc_report: see ftc_report.h. */
#include "tools/ftc_report.h"

void report_ops(FILE *out) {
  static const char *const class_text[] = {"leaf",   "pointwise", "reduce", "contract",
                                           "window", "move",      "struct"};
  static const char *const gradient[] = {
#define OP(ID, text, min, max, op_class, rule, gradient) #gradient,
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

int report_memory(const Program *program, bool as_svg, FILE *out) {
  (void)program;
  (void)as_svg;
  (void)out;
  fprintf(stderr, "ftc: --memory is not built into this ftc yet\n");
  return 1;
}
