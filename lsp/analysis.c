/* analysis: see analysis.h. */
#include "lsp/analysis.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Nanoseconds of computing: a machine that is busy otherwise does not count. */
static int64_t analysis_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void take_message(void *user, const char *kind, Loc loc, const char *message) {
  Analysis *analysis = user;
  if (strcmp(kind, "note") != 0) {
    Finding finding = {.loc = loc, .is_warning = !strcmp(kind, "warning"), .message = message};
    VEC_PUSH(analysis->arena, analysis->findings, finding);
  } else if (analysis->findings.count) {
    Finding *finding = &analysis->findings.at[analysis->findings.count - 1];
    VEC_PUSH(analysis->arena, finding->notes, ((FindingNote){loc, message}));
  }
}

static bool analysis_goes_on(void *user) {
  Analysis *analysis = user;
  const AnalysisHost *host = analysis->host;
  if (analysis_clock() - analysis->begun > ANALYSIS_SECONDS * INT64_C(1000000000) ||
      arena_bytes(analysis->arena) > ANALYSIS_BYTES)
    analysis->is_too_long = true;
  else if (host && host->goes_on && !host->goes_on(host->user))
    analysis->is_given_up = true;
  return !analysis->is_too_long && !analysis->is_given_up;
}

static const char *text_of_import(void *user, const char *path, size_t *length) {
  const AnalysisHost *host = ((Analysis *)user)->host;
  return host && host->text_of ? host->text_of(host->user, path, length) : NULL;
}

static void run_frontend_on(Analysis *analysis, const char *path, const char *text, size_t length) {
  diag_init(&analysis->diag, analysis->arena, stderr); /* which gets nothing */
  analysis->diag.take = take_message;
  analysis->diag.take_user = analysis;
  watch_init(&analysis->watch, analysis->arena);
  analysis->watch.goes_on = analysis_goes_on;
  analysis->watch.text_of = text_of_import;
  analysis->watch.user = analysis;
  FrontendOptions options = {.watch = &analysis->watch};
  analysis->is_good = frontend_compile_bytes(analysis->arena, &analysis->diag, path, text, length,
                                             &options, &analysis->program);
  analysis->is_parsed =
      analysis->is_good || analysis->watch.mentions.count || analysis->program.hypers.count;
  if (analysis->is_too_long)
    diag_warning(&analysis->diag, (Loc){0},
                 "this file takes more than %d seconds or 1 GiB to be looked at as you type; ftc "
                 "says all of it",
                 ANALYSIS_SECONDS);
}

Analysis *analysis_run(const char *path, const char *text, size_t length,
                       const AnalysisHost *host) {
  Arena *arena = arena_new();
  Analysis *volatile analysis = NULL;
  MemoryGuard guard;
  memory_enter(&guard);
  if (setjmp(guard.place) == 0) {
    analysis = ARENA_NEW(arena, Analysis);
    *analysis =
        (Analysis){.arena = arena, .host = host, .begun = analysis_clock(), .length = length};
    run_frontend_on(analysis, path, text, length);
    analysis->host = NULL;
  } else {
    analysis = NULL;
  }
  memory_leave(&guard);
  if (analysis && !analysis->is_given_up) return analysis;
  arena_free(arena);
  return NULL;
}

void analysis_free(Analysis *analysis) {
  if (analysis) arena_free(analysis->arena);
}

const char *analysis_text(const Analysis *analysis) { return analysis->diag.files.at[0].text; }

/* ── places in another text ───────────────────────────────────────────────────────────────── */
static size_t count_same_bytes(const char *a, const char *b, size_t most) {
  size_t n = 0;
  while (n < most && a[n] == b[n]) n++;
  return n;
}

static size_t count_same_ends(const char *a, const char *b, size_t most) {
  size_t n = 0;
  while (n < most && a[-1 - (ptrdiff_t)n] == b[-1 - (ptrdiff_t)n]) n++;
  return n;
}

static Loc loc_at(const char *text, size_t offset) {
  uint32_t line = 1;
  const char *begin = text;
  for (const char *c = text; (c = memchr(c, '\n', (size_t)(text + offset - c))) != NULL;
       begin = ++c)
    line++;
  size_t column = (size_t)(text + offset - begin) + 1;
  return (Loc){
      .file = 1, .line = line, .column = column > UINT16_MAX ? UINT16_MAX : (uint16_t)column};
}

/* Between the first change and the last one: by its line, if there was one like it, and only one. */
static bool place_by_line(const Analysis *analysis, const char *text, size_t length, size_t from,
                          Loc *loc) {
  const char *old = analysis_text(analysis), *end = old + analysis->length, *found = NULL;
  size_t begin = from;
  while (begin > 0 && text[begin - 1] != '\n') begin--;
  const char *stop = memchr(text + from, '\n', length - from);
  size_t size = (size_t)((stop ? stop : text + length) - (text + begin));
  for (const char *line = old; line < end;) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    const char *line_end = newline ? newline : end;
    bool is_same = (size_t)(line_end - line) == size && memcmp(line, text + begin, size) == 0;
    if (is_same && found) return false;
    if (is_same) found = line;
    line = line_end + 1;
  }
  if (found) *loc = loc_at(old, (size_t)(found - old) + (from - begin));
  return found != NULL;
}

bool analysis_place(const Analysis *analysis, const char *text, size_t length, size_t from,
                    size_t to, Loc *loc) {
  const char *old = analysis_text(analysis);
  size_t most = length < analysis->length ? length : analysis->length;
  size_t same = count_same_bytes(old, text, most), offset = from;
  if (to > same) {
    size_t ends = count_same_ends(old + analysis->length, text + length, most);
    if (length - from > ends) return place_by_line(analysis, text, length, from, loc);
    offset = analysis->length - (length - from);
  }
  *loc = loc_at(old, offset);
  return true;
}

const Mention *analysis_mention(const Analysis *analysis, const char *text, size_t length,
                                size_t from, size_t to) {
  Loc loc;
  char name[256];
  if (!analysis || to - from >= sizeof name ||
      !analysis_place(analysis, text, length, from, to, &loc))
    return NULL;
  snprintf(name, sizeof name, "%.*s", (int)(to - from), text + from);
  const Mention *mention = watch_at(&analysis->watch, loc, name);
  return mention && mention->value.kind != VALUE_ERROR ? mention : NULL;
}
