/* given: the weights of frozen layers, which the program takes from files (states of role given). They
 * are read when a run begins, go to no checkpoint, and are not the caller's: a checkpoint has a sum over
 * them, so that a training does not go on with others. */
#ifndef FT_RUNTIME_GIVEN_H
#define FT_RUNTIME_GIVEN_H
#include "base/text.h"
#include "runtime/data/source.h"
#include "runtime/execute/exec.h"

/* Reads what the graphs need that this Exec runs, from files that are found as data is. A name in a file
 * may have a prefix, the same for all of a layer. trains: what all stages of a pipeline need, and *sum
 * (may be NULL) is over all of it, 0 if there is none. *notes (may be NULL) gets a line for each file. */
STATUS_CHECKED Status given_load(Exec *exec, const SourcePlaces *places, bool trains, Text *notes,
                                 uint64_t *sum);
/* All weights of a run that does not train: those, then the caller's, from the file `weights`. */
STATUS_CHECKED Status given_load_all(Exec *exec, const SourcePlaces *places, const char *weights,
                                     Text *notes);
/* Zeros in their place, where only the time of a step matters. */
STATUS_CHECKED Status given_clear(Exec *exec);
/* "a.safetensors, b.safetensors", as the program names them. */
void given_files(const Exec *exec, Text *out);
#endif
