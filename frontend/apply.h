/* apply: writes values of hypers and settings into the .ft file that they belong to (ftc --apply, ftrun tune --apply).
 * Only the values change, or a line is added for a setting that the file does not have. Invariant: what is written
 * compiles without any flag to the same program that the old file gives with these values as -D and --set; where that
 * cannot be, nothing is written, and the message says what to write by hand. */
#ifndef FT_FRONTEND_APPLY_H
#define FT_FRONTEND_APPLY_H
#include "frontend/program.h"

/* choices: "width=8" of a hyper, or of a setting if there is no such hyper; "train.lr=0.003". options are those of the
 * compilation that the values are for: its preset is where a hyper that it sets is changed. Says on `out` what was
 * there and what is now. All errors are in diag; false if there was one. */
bool apply_write(Arena *arena, Diag *diag, const char *path, const FrontendOptions *options,
                 const char *const *choices, int count, FILE *out);
/* The program's file once more at `output`, with what options say of hypers (-D, a preset) and settings in it, so that it compiles by
 * itself to `program`. False after an error; then there is no such file. */
bool apply_copy(Arena *arena, Diag *diag, const Program *program, const FrontendOptions *options, const char *output);
#endif
