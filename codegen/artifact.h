/* artifact: from code to the file. */
#ifndef FT_CODEGEN_ARTIFACT_H
#define FT_CODEGEN_ARTIFACT_H
#include "codegen/module.h"

/* Puts the plan's text into the module as the string symbol ft_plan, alone in the section .ft_plan:
 * the runtime reads it there without loading the library. */
bool artifact_embed_plan(Module *module, const Code *code);

/* Runs a program and waits for it: arguments end with NULL. `message` gets the start of what it said, and nothing is
 * allocated meanwhile. Returns its exit status, 127 if there is no such program, or -1. */
int artifact_run(const char *const *arguments, char *message, size_t size);
/* A new file beside `path`, gone in a moment: not synced. *name is empty if there is none. Returns
 * 0, an errno value or TEXT_IRREGULAR. */
int artifact_write_beside(const char *path, const Text *bytes, Text *name);
/* "cannot <what> <path>: ..."; false. */
bool artifact_fail(Diag *diag, const char *what, const char *path, int error);
#endif
