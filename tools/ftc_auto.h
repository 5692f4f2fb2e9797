/* ftc_auto: `distributed { auto(gpus = 64, memory = 80 GiB) }`: compiles the program for each
 * mesh as far as its plan, has the simulation reckon the step, and says which settings are chosen,
 * as the user would have written them. */
#ifndef FT_TOOLS_FTC_AUTO_H
#define FT_TOOLS_FTC_AUTO_H
#include "codegen/codegen.h"
#include "passes/pass.h"
#include "simulate/cluster.h"
#include <stdio.h>

typedef struct {
  const char *path;
  FrontendOptions *frontend; /* what is chosen is added to its --set */
  const PassOptions *passes;
  CodegenOptions *codegen; /* the target that the command line means; or what is chosen */
  bool has_target;         /* it names one, so the words may not ask for another */
  const Cluster *given;    /* of --simulate, or NULL */
  FILE *out;               /* the table */
} AutoInput;

/* Does the program ask for it? */
bool auto_is_asked(const Program *program);
/* Chooses for a program that has been through the front end, and has it go there once more with what
 * is chosen, as if --set said so. False after saying why not. */
bool auto_apply(const AutoInput *input, Program *program, Diag *diag);
#endif
