/* source_kind: the rows of sources.def, for the language, which checks what a recipe says of its
 * data, and for the runtime, which reads it. */
#ifndef FT_PLAN_SOURCE_KIND_H
#define FT_PLAN_SOURCE_KIND_H
#include "plan/plan.h"

typedef enum {
  SOURCE_ARRAYS,
  SOURCE_RECORDS,
  SOURCE_TEXT,
  SOURCE_SAMPLES,
  SOURCE_SHARDS
} SourceForm;
typedef enum { SOURCE_HEAD, SOURCE_SIZE, SOURCE_ALL } SourceReads;
/* A row of sources.def. */
typedef struct {
  const char *name;
  SourceForm form;
  SourceReads reads;
  const char *begins;
  int begins_count; /* bytes; they may be zeros */
} SourceKind;
extern const SourceKind source_kinds[];
extern const int source_kind_count;

const SourceKind *source_kind_find(const char *name); /* NULL: there is none */
/* The kind of a file that begins so; NULL: of none. */
const SourceKind *source_kind_guess(const uint8_t *head, size_t count);
/* Is it the address of something elsewhere, "https://…", "s3://…"? Then *why, to be freed, says how to
 * get it. */
bool source_file_is_remote(const char *file, Text *why);
/* Are the samples read one by one, and does the first input get images of any size? */
bool source_is_single_kind(const SourceKind *kind);
bool source_makes_images(const DataSource *data);
/* "idx, npy, …, bytes and tokens" */
void source_kind_list(Text *out);

typedef enum {
  OPTION_COUNT,
  OPTION_WHOLE,
  OPTION_NUMBER,
  OPTION_TEXT,
  OPTION_BOOL,
  OPTION_WORD
} SourceOptionType;
/* A row of source_options.def. */
typedef struct {
  const char *source, *name;
  SourceOptionType type;
  const char *words;
} SourceOption;
extern const SourceOption source_options[];
extern const int source_option_count;

/* Does the row belong to this kind? */
bool source_option_is_of(const SourceOption *option, const SourceKind *kind);
/* The row of a kind's option; NULL: the kind has no such option. */
const SourceOption *source_option_find(const SourceKind *kind, const char *name);
/* Has the kind options that other kinds have not? */
bool source_kind_has_options(const SourceKind *kind);
/* Is the value what the row says? */
bool source_option_takes(const SourceOption *option, const DataOption *value);
bool source_option_has_word(const SourceOption *option, const char *word);
/* "a positive integer", "u16 or u32" */
void source_option_wants(const SourceOption *option, Text *out);
/* As a recipe has it: limit=1000, dtype=u16, columns="a,b". */
void source_option_print(const SourceKind *kind, const DataOption *value, Text *out);
/* Options are what a plan may make up: false if one is unknown, given twice or of another type; then
 * *why is the reason, to be freed. */
bool source_kind_check(const SourceKind *kind, const DataSource *data, Text *why);

/* What is given for an option, or `otherwise` if it is not given or no number (no text, no
 * flag). data NULL gives none. */
double source_kind_number(const DataSource *data, const char *option, double otherwise);
const char *source_kind_text(const DataSource *data, const char *option, const char *otherwise);
bool source_kind_flag(const DataSource *data, const char *option, bool otherwise);
#endif
