/* ftc_shrink: a program without the channels that its weights do not use: the same file with train.widths in it. `ftrun shrink`
 * asks for it, and takes the same out of the weights. */
#ifndef FT_TOOLS_FTC_SHRINK_H
#define FT_TOOLS_FTC_SHRINK_H
#include "frontend/program.h"
#include "base/text.h"

typedef struct {
  const char *path, *zeros, *output; /* zeros: a text, see ftc_shrink.c */
  const FrontendOptions *frontend;
  FILE *out; /* what goes, as lines: see ftc_shrink.c */
} ShrinkInput;

/* For a program that has been through the front end. False after saying why not: all errors are in diag. */
bool ftc_shrink(const ShrinkInput *input, const Program *program, Diag *diag);
#endif
