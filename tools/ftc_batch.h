/* ftc_batch: `batch = auto(memory = 8 GiB)` and `ftc --find-batch`: compiles the program at powers of
 * two and between as far as its plan, and says what of it fits the memory. */
#ifndef FT_TOOLS_FTC_BATCH_H
#define FT_TOOLS_FTC_BATCH_H
#include "tools/ftc_auto.h"

/* Does the program ask for it? */
bool batch_is_asked(const Program *program);
/* Chooses for a program that has been through the front end, and has it go there once more with the
 * largest batch that fits, as if --set train.batch said so. False after saying why not. */
bool batch_apply(const AutoInput *input, Program *program, Diag *diag);
/* The table only; an exit code. */
int batch_print(const AutoInput *input, const Program *program, Diag *diag);
#endif
