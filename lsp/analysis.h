/* analysis: what the front end makes of one file as the editor has it: messages, and what its names
 * stood for. Nothing is compiled. An analysis owns its arena; freeing it frees all. */
#ifndef FT_LSP_ANALYSIS_H
#define FT_LSP_ANALYSIS_H
#include "frontend/watch.h"

typedef struct {
  Loc loc;
  const char *message;
} FindingNote;

typedef struct {
  Loc loc;
  bool is_warning;
  const char *message;
  VEC(FindingNote) notes;
} Finding;

typedef struct {
  bool (*goes_on)(void *user); /* false: give up, the text has changed meanwhile */
  const char *(*text_of)(void *user, const char *path, size_t *length);
  void *user;
} AnalysisHost;

typedef struct {
  Arena *arena;
  Diag diag;
  Program program;
  Watch watch;
  VEC(Finding) findings;
  const AnalysisHost *host; /* while it runs */
  int64_t begun;            /* nanoseconds of computing */
  size_t length;
  bool is_parsed, is_good, is_given_up, is_too_long;
} Analysis;

enum { ANALYSIS_SECONDS = 3 };
#define ANALYSIS_BYTES ((size_t)1 << 30) /* it ends about here */

/* NULL: it was given up, or there was no memory. */
Analysis *analysis_run(const char *path, const char *text, size_t length, const AnalysisHost *host);
void analysis_free(Analysis *analysis);
/* The text that it is of. */
const char *analysis_text(const Analysis *analysis);
/* Where bytes [from, to) of a text that is now another stood in the one that was analysed; false: there they were not. */
bool analysis_place(const Analysis *analysis, const char *text, size_t length, size_t from,
                    size_t to, Loc *loc);
/* What stood for a name that is now at these bytes; NULL: unknown. */
const Mention *analysis_mention(const Analysis *analysis, const char *text, size_t length,
                                size_t from, size_t to);
#endif
