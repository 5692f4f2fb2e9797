/* ftrun_study: runs a study: trials side by side, each a training as a process of its own, until there are as many as are
 * wanted. */
#ifndef FT_TOOLS_FTRUN_STUDY_H
#define FT_TOOLS_FTRUN_STUDY_H
#include "runtime/data/source.h"
#include "runtime/tune/prune.h"
#include "runtime/tune/study.h"

enum { STUDY_MOST_PARALLEL = 256 };

typedef struct {
  int command; /* its number, for messages */
  const char *model, *study, *goal, *device;
  bool is_source, has_threads, applies;
  Space space;
  const char *spaces[SPACE_MOST]; /* --space, as given */
  int space_count;
  const char *wheres[SPACE_MOST_WHERE]; /* --where, as given */
  int where_count;
  Text hypers; /* what `ftc --hypers` says of the .ft file */
  int trials, parallel, chosen; /* --trial, for --apply; -1: the best */
  SamplerKind sampler;
  PruneRule prune;
  uint64_t seed;
  SourcePlaces places;
  const char **pass; /* for the compiler: -D, --preset, --set of static settings */
  int pass_count;
  char **kept; /* for each training */
  int kept_count;
} TuneOptions;

/* Is "key=value" a setting that is compiled in, and so the compiler's? */
bool study_is_static(const char *assignment);
/* … or one that can change when a training starts, if the compiler made memory for it (the average of weights, a momentum) or may tell
 * a factor: of a .ft file both are told. */
bool study_is_compilers_too(const char *assignment);
/* The exit code; failures have been told. */
int study_run(TuneOptions *options);
#endif
