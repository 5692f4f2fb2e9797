/* artifact: from code to the file. */
#ifndef FT_CODEGEN_ARTIFACT_H
#define FT_CODEGEN_ARTIFACT_H
#include "codegen/module.h"

/* Puts the plan's text into the module as the string symbol ft_plan, alone in the section .ft_plan:
 * the runtime reads it there without loading the library. */
bool artifact_embed_plan(Module *module, const Code *code);
#endif
