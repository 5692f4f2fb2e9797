/* artifact: from code to the file. */
#ifndef FT_CODEGEN_ARTIFACT_H
#define FT_CODEGEN_ARTIFACT_H
#include "codegen/module.h"

/* Puts the plan's text into the module as the string symbol ft_plan. */
bool artifact_embed_plan(Module *module, const Plan *plan);
#endif
