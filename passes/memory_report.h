/* memory_report: what a step needs, by category, and the picture of the place work over time. Works
 * on a program after all passes (ftc --memory, ftc --memory=FILE.svg, the plan's memory table). */
#ifndef FT_PASSES_MEMORY_REPORT_H
#define FT_PASSES_MEMORY_REPORT_H
#include "frontend/program.h"

/* X(ID, text): the rows, in order. Their sum is what a device must have, but for the runtime's ring
 * of further input batches and what libraries take for themselves. */
#define MEMORY_CATEGORIES(X)                                                                       \
  X(PARAMS, "parameters")                                                                          \
  X(FROZEN, "parameters, frozen")                                                                  \
  X(GIVEN, "weights of frozen layers")                                                             \
  X(NARROW, "parameters, rounded for products")                                                    \
  X(GRADS, "gradients")                                                                            \
  X(OPTIMIZER, "optimizer state")                                                                  \
  X(STATE, "model state")                                                                          \
  X(INPUT, "inputs, one batch")                                                                    \
  X(OUTPUT, "outputs")                                                                             \
  X(GATHERED, "parameters, gathered from ranks")                                                   \
  X(KEPT, "activations kept for backward")                                                         \
  X(TEMPORARY, "temporaries")                                                                      \
  X(GAPS, "gaps between them")
typedef enum {
#define X(ID, text) MEMORY_##ID,
  MEMORY_CATEGORIES(X)
#undef X
      MEMORY_CATEGORY_COUNT
} MemoryCategory;

typedef struct {
  int64_t bytes[MEMORY_CATEGORY_COUNT];
  int64_t total;
  int64_t work_peak, work_bound; /* of the training step (or else of evaluation) */
  int64_t eval_peak;             /* of the place work in evaluation: the same memory */
  int64_t variant_peak[PLAN_MOST_FORMS - 1]; /* … and in the step with … */
  const char *variant_name[PLAN_MOST_FORMS - 1]; /* … this form, "rows of 64"; NULL: there are no more */
  int steps, busiest;            /* launches and calls of a step; where most bytes are live */
  const char *recompute;         /* recompute_describe, or NULL */
  const char *busiest_name;
  uint32_t busiest_line;
} MemoryReport;

const char *memory_human(int64_t bytes, char buffer[32]); /* "1.53 GiB" */
/* Has a model the category at all? */
bool memory_is_shown(const MemoryReport *report, MemoryCategory category);
const char *memory_category_text(MemoryCategory category);
MemoryReport memory_report(const Program *program, Arena *arena);
void memory_report_print(const MemoryReport *report, FILE *out);
/* Rectangles: x the steps a value lives, y its place in the place work. Self-contained SVG. */
void memory_report_svg(const Program *program, Arena *arena, FILE *out);
#endif
