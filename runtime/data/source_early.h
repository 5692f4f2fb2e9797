/* source_early: `ftrun model.ft` opens the training's data while the compiler still runs: inflating
 * 47 MB takes as long as compiling a small model, and there is a core for each. The .ft text is
 * only skimmed for file names; a wrong guess costs nothing but the work. Main thread only. */
#ifndef FT_RUNTIME_SOURCE_EARLY_H
#define FT_RUNTIME_SOURCE_EARLY_H
#include "runtime/data/source.h"

/* Looks for `train = idx("a", "b")` (or another kind whose files may be compressed) in a .ft file
 * and starts reading. */
void source_early_start(const char *ft_path, const SourcePlaces *places);
/* The array of this path if it was opened early; the caller owns it then. NULL: it was not. */
DataArray *source_early_take(const char *kind, const char *path);
/* Closes the sources that were not taken. */
void source_early_end(void);
#endif
