/* ftc_stages: with distributed.pipeline a program is compiled once for each stage; without, there is
 * one. */
#ifndef FT_TOOLS_FTC_STAGES_H
#define FT_TOOLS_FTC_STAGES_H
#include "codegen/codegen.h"
#include "passes/pass.h"

typedef struct {
  Program *program; /* of those that are wanted, in their order: what the passes work on */
  Code *code;
  int count;
} Stages;

/* `chosen`: the number of one (--stage); NULL: all. An exit code, 1 if there is no such stage; the
 * sentence is on standard error. */
int stages_make(const Program *program, const char *chosen, Stages *out);
bool stages_run_passes(Stages *stages, Diag *diag, const PassOptions *options, bool for_gpu);
bool stages_run_codegen(Stages *stages, Diag *diag, CodegenOptions *options);
/* The graphs for training and evaluation as text (docs/ir.md), of each stage. */
void stages_print(const Stages *stages, Arena *arena, FILE *out);
void stages_free(Stages *stages);
#endif
