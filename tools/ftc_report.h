/* ftc_report: what ftc prints about itself and about a program, besides compiling it. */
#ifndef FT_TOOLS_FTC_REPORT_H
#define FT_TOOLS_FTC_REPORT_H
#include "base/version.h"
#include "frontend/program.h"
#include "passes/pass.h"

void report_ops(FILE *out); /* --list-ops: the table of ops.def */
/* --memory of a program after memplan. how: NULL: the table, to `out`; "svg": the picture, to
 * `out`; else the picture, to the file of that name. Returns an exit code. */
int report_memory(const Program *program, const char *how, FILE *out);

/* A line for each of several stages of a pipeline, and which needs most. */
void report_memory_by_stage(const Program *stages, int count, FILE *out);

/* What compiling took: the program is compiled again. */
typedef struct {
  const char *path;
  const FrontendOptions *frontend;
  const PassOptions *passes;
  bool for_gpu;
} ReportInput;
/* A line for each level of distributed.zero: what one of so many ranks needs. */
void report_memory_by_zero(const ReportInput *input, int64_t ranks, FILE *out);
/* --taps: a line for each application of a layer: "tap PATH BLOCK NUMBER", then of a convolution stride, padding, dilation (each of
 * two sides) and groups. A line for each layer, which weights can take in factors of its input features, and which layers read the same
 * features, by their weights: "fold PATH reader NAME ... weight NAME AXIS ...", or "fold PATH none WORDS". Then a line for each matrix outside of layers: "matrix PARAMETER AXIS PRODUCTS" (frontend/program.h). */
void report_taps(const Program *program, FILE *out);
#endif
