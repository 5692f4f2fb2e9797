/* csource: functions of an LLVM module as one text of portable C (C99, or C11), for machines that LLVM is not
 * asked about. It knows the part of LLVM IR that ft's code generator and its C kernels give; all else is an
 * error that names the instruction, never something left out.
 *
 * Memory has the layout of x86-64, whatever runs the C: numbers are little-endian, and a pointer lies in a cell
 * of 8 bytes, of which it takes as many as it needs. Integers are unsigned in C and signed operations cast, shifts
 * are masked and conversions guarded, so nothing that LLVM computes and does not use (poison) is undefined in C. */
#ifndef FT_CODEGEN_CSOURCE_H
#define FT_CODEGEN_CSOURCE_H
#include "codegen/module.h"

typedef struct CSource CSource;

/* Functions and constants of `module` are numbered and written when they are asked for, those that they use before
 * them. The module's values are named anew; it is not changed otherwise. */
CSource *csource_new(Module *module);
void csource_free(CSource *c);
/* The name in C of a function. `where` is of what a refusal speaks ("line 3, layer 'fc'"), and is kept. */
const char *csource_function(CSource *c, const char *name, const char *where);
/* What has been written up to now: a head, types, helpers, then constants and functions. False: something had no
 * form in C, and an error in the module's diag says what and where. */
bool csource_finish(CSource *c, Text *out);
#endif
