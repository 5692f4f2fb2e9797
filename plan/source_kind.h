/* source_kind: the rows of sources.def, for the language, which checks what a recipe says of its
 * data, and for the runtime, which reads it. */
#ifndef FT_PLAN_SOURCE_KIND_H
#define FT_PLAN_SOURCE_KIND_H
#include "plan/plan.h"

typedef enum { SOURCE_ARRAYS, SOURCE_TEXT } SourceForm;
typedef enum { SOURCE_HEAD, SOURCE_SIZE, SOURCE_ALL } SourceReads;
/* A row of sources.def. */
typedef struct {
  const char *name;
  SourceForm form;
  SourceReads reads;
  const char *options, *begins;
  int begins_count; /* bytes; they may be zeros */
} SourceKind;
extern const SourceKind source_kinds[];
extern const int source_kind_count;

const SourceKind *source_kind_find(const char *name); /* NULL: there is none */
/* The kind of a file that begins so; NULL: of none. */
const SourceKind *source_kind_guess(const uint8_t *head, size_t count);
/* May the recipe give it this option? limit is for all kinds. */
bool source_kind_takes(const SourceKind *kind, const char *option);
/* The number given for an option, or `otherwise`. NULL gives none. */
double source_kind_option(const DataSource *data, const char *option, double otherwise);
/* "idx, npy, bytes and tokens" */
void source_kind_list(Text *out);
#endif
