/* hypers: the text of a program's hypers and presets, as their author wrote it, for --hypers. */
#ifndef FT_FRONTEND_HYPERS_H
#define FT_FRONTEND_HYPERS_H
#include "base/diag.h"

/* The comment at the end of the line, without its slashes; "" if there is none. */
const char *hypers_comment(Arena *arena, const Diag *diag, Loc loc);
/* What stands from there to the first of `ends`, to a comment or to the line's end, outside of strings. */
const char *hypers_source(Arena *arena, const Diag *diag, Loc loc, const char *ends);
#endif
