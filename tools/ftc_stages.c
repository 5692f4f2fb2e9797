/* ftc_stages: see ftc_stages.h. */
#include "tools/ftc_stages.h"
#include "passes/recompute.h"
#include <stdlib.h>
#include <string.h>

int stages_make(const Program *program, const char *chosen, Stages *out) {
  int stages = (int)setting_pipeline(program->settings), first = 0, last = stages - 1;
  *out = (Stages){.program = ARENA_ARRAY(program->arena, Program, stages),
                  .code = ARENA_ARRAY(program->arena, Code, stages)};
  if (chosen) {
    size_t digits = strspn(chosen, "0123456789");
    first = last = digits && digits < 4 && !chosen[digits] ? atoi(chosen) : stages;
  }
  if (last >= stages) {
    fprintf(stderr, "ftc: there is no --stage %s: the model has %d (distributed.pipeline)%s\n",
            chosen, stages, stages > 1 ? ", counted from 0" : "");
    return 1;
  }
  for (int s = first; s <= last; s++)
    out->program[out->count++] = stages > 1 ? frontend_stage(program, s) : *program;
  return 0;
}

/* What the first stage has been warned of is not said again of the others; errors are. */
static bool run_quietly(Program *program, Diag *diag, const PassOptions *options, bool for_gpu) {
  PassOptions unseen = *options; /* who looks on sees the first stage */
  unseen.observe = NULL;
  char *said = NULL;
  size_t count = 0;
  int warnings = diag->warnings;
  FILE *out = diag->out, *memory = open_memstream(&said, &count);
  if (memory) diag->out = memory;
  bool good = passes_run(program, diag, &unseen, for_gpu);
  diag->out = out;
  diag->warnings = warnings;
  if (memory) fclose(memory);
  if (said && diag->errors) fputs(said, out);
  free(said);
  return good;
}

bool stages_run_passes(Stages *stages, Diag *diag, const PassOptions *options, bool for_gpu) {
  bool good = true;
  for (int i = 0; i < stages->count && good; i++)
    good = i ? run_quietly(&stages->program[i], diag, options, for_gpu)
             : passes_run(&stages->program[i], diag, options, for_gpu);
  return good && !diag->errors;
}

bool stages_run_codegen(Stages *stages, Diag *diag, CodegenOptions *options) {
  bool good = true;
  for (int i = 0; i < stages->count && good; i++) {
    const Program *program = &stages->program[i];
    options->before = i ? &stages->code[i - 1] : NULL;
    good = codegen_run(program->arena, diag, program, options, &stages->code[i]);
  }
  return good;
}

void stages_free(Stages *stages) {
  for (int i = 0; i < stages->count; i++) code_free(&stages->code[i]);
}

void stages_print(const Stages *stages, Arena *arena, FILE *out) {
  for (int i = 0; i < stages->count; i++) {
    const Program *program = &stages->program[i];
    const char *recompute = recompute_describe(program->train, arena);
    if (setting_pipeline(program->settings) > 1)
      fprintf(out, "%s// stage %d of %lld\n", i ? "\n" : "", program->stage,
              (long long)setting_pipeline(program->settings));
    if (recompute) fprintf(out, "// %s\n", recompute);
    graph_print(program->train, out);
    fputc('\n', out);
    graph_print(program->eval, out);
  }
}
