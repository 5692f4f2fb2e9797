/* desk: the files that an editor has open, with what is known of them, and where names are declared:
 * in a file itself, in those it imports, in the standard library. */
#ifndef FT_LSP_DESK_H
#define FT_LSP_DESK_H
#include "lsp/analysis.h"
#include "lsp/document.h"
#include "lsp/outline.h"
#include <jansson.h>

enum { DESK_MOST_FILES = 200, DESK_MOST_ANALYSES = 8 };

typedef struct {
  char *uri, *path;
  json_int_t version;
  bool has_version;
  Document document;
  bool is_lost;    /* its text is not known, or too long: nothing is said of it */
  bool is_dirty;   /* it has changed since the last analysis */
  bool is_refused; /* its last analysis was given up for its size or time */
  uint64_t used;
  Arena *arena;          /* of outline */
  Outline *outline;      /* of the text as it is now; NULL: not made yet */
  Analysis *last, *good; /* the last one that came to evaluate anything; the last without errors */
} OpenFile;

typedef struct {
  Arena *arena;
  bool is_utf8, has_related;
  OpenFile *file[DESK_MOST_FILES];
  int count;
  uint64_t clock;
  VEC(Outline *) std;
  VEC(const char *) std_names; /* "nn" */
} Desk;

/* A declaration and the file that it is in. */
typedef struct {
  const Outline *outline;
  const Declaration *declaration;
  const char *path; /* absolute where it is a file; "" : there is no such file */
  bool is_std, is_here;
} Found;

void desk_init(Desk *desk);
void desk_free(Desk *desk);
OpenFile *desk_find(Desk *desk, const char *uri);
OpenFile *desk_open(Desk *desk, const char *uri); /* NULL: there are too many */
void desk_close(Desk *desk, OpenFile *file);
/* The text has changed. */
void desk_touch(Desk *desk, OpenFile *file);
Outline *desk_outline(OpenFile *file);
/* After an analysis: keeps it, and lets go of those of files that have long not been looked at. */
void desk_keep(Desk *desk, OpenFile *file, Analysis *analysis);
/* Does the file import the one at this path? */
bool desk_imports(const OpenFile *file, const char *path);
/* The file that is imported as file number `index` from 0 and its outline, in `arena`; false: no more. */
bool desk_import(Arena *arena, const OpenFile *file, int index, Found *out);
/* What a name means at the top level; `arena` keeps outlines of imports. */
bool desk_declaration(Desk *desk, Arena *arena, OpenFile *file, const char *name, Found *out);
/* The file that a part of the standard library is installed as, "" if there is none with this very text. */
const char *desk_std_path(Arena *arena, const char *name, const char *text);
/* What stood for the name at this token when it was last evaluated; NULL: unknown. */
const Mention *desk_mention(OpenFile *file, int token);

char *desk_path(const char *uri); /* malloc'd; "untitled.ft" where it is no file */
const char *desk_uri(Arena *arena, const char *path);
json_t *desk_string(const char *text); /* bytes that are no UTF-8 become '?' */
json_t *desk_range(const Desk *desk, const Document *document, size_t from, size_t to);
json_t *desk_token_range(const Desk *desk, const OpenFile *file, int token);
/* {contents: ...} of a place in any text. */
json_t *desk_location(const Desk *desk, const char *uri, const char *text, size_t length,
                      size_t from, size_t to);

/* ── answers: each a new JSON value, null where there is nothing to say ── */
json_t *hover_answer(Desk *desk, OpenFile *file, size_t offset);
json_t *complete_answer(Desk *desk, OpenFile *file, size_t offset);
json_t *find_definition(Desk *desk, OpenFile *file, size_t offset);
json_t *find_references(Desk *desk, OpenFile *file, size_t offset, bool with_declaration);
/* NULL: it cannot be renamed so, and *why says why. */
json_t *find_rename(Desk *desk, OpenFile *file, size_t offset, const char *name, const char **why);
json_t *find_highlights(Desk *desk, OpenFile *file, size_t offset);
json_t *find_symbols(Desk *desk, OpenFile *file);
json_t *diagnose_answer(Desk *desk, OpenFile *file, const Analysis *analysis); /* the list */
#endif
