/* hypers: see hypers.h; and --hypers, the table of them. */
#include "frontend/hypers.h"
#include "base/text.h"
#include "frontend/program.h"
#include <string.h>

/* ── as written ───────────────────────────────────────────────────────────────────────────── */

/* NULL for a place in no file. */
static const char *text_at(const Diag *diag, Loc loc) {
  const char *line = loc.file ? diag->files.at[loc.file - 1].text : NULL;
  for (uint32_t n = 1; line && n < loc.line; n++) {
    line = strchr(line, '\n');
    if (line) line++;
  }
  if (!line) return NULL;
  size_t length = strcspn(line, "\r\n"), column = loc.column ? loc.column - 1u : 0;
  return line + (column < length ? column : length);
}

/* How many characters there are before the line's end, a comment, or one of `ends`. */
static size_t length_until(const char *text, const char *ends) {
  bool in_string = false;
  size_t i = 0;
  for (; text[i] && text[i] != '\n' && text[i] != '\r'; i++) {
    if (in_string && text[i] == '\\' && text[i + 1] && text[i + 1] != '\n') {
      i++;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (in_string) continue;
    if ((text[i] == '/' && text[i + 1] == '/') || strchr(ends, text[i])) break;
  }
  return i;
}

static const char *trimmed(Arena *arena, const char *from, size_t length) {
  while (length && (*from == ' ' || *from == '\t')) from++, length--;
  while (length && strchr(" \t", from[length - 1])) length--;
  return arena_strndup(arena, from, length);
}

const char *hypers_source(Arena *arena, const Diag *diag, Loc loc, const char *ends) {
  const char *text = text_at(diag, loc);
  return text ? trimmed(arena, text, length_until(text, ends)) : "";
}

const char *hypers_comment(Arena *arena, const Diag *diag, Loc loc) {
  const char *text = text_at(diag, loc);
  if (!text) return "";
  text += length_until(text, "");
  if (*text != '/') return "";
  return trimmed(arena, text + 2, strcspn(text + 2, "\r\n"));
}

/* ── the table ────────────────────────────────────────────────────────────────────────────── */

static int widen_for(int width, const char *text) {
  int length = (int)strlen(text);
  return length > width ? length : width;
}

/* Comments and texts may be anyone's, and a string of several lines would look like lines of the table, which ftrun reads. */
static void put_line(Text *line, FILE *out) {
  while (line->count && line->at[line->count - 1] == ' ') line->at[--line->count] = 0;
  text_make_printable(line->at);
  for (char *c = line->at; (c = strchr(c, '\n'));) *c = '?';
  fprintf(out, "%s\n", line->at);
  line->count = 0;
}

static void print_presets(const Program *program, Text *line, FILE *out) {
  int name = 0, values = 0;
  for (int i = 0; i < program->presets.count; i++) {
    name = widen_for(name, program->presets.at[i].name);
    if (*program->presets.at[i].doc) values = widen_for(values, program->presets.at[i].values);
  }
  fprintf(out, "\npresets, chosen by --preset NAME\n");
  for (int i = 0; i < program->presets.count; i++) {
    const Preset *preset = &program->presets.at[i];
    text_printf(line, "  %-*s  %-*s  %s", name, preset->name, values, preset->values, preset->doc);
    put_line(line, out);
  }
}

/* ftrun reads it: tools/ftrun_tune_block.c. */
static void print_tune(const Program *program, FILE *out) {
  Text line = {0};
  if (program->tune.count) fprintf(out, "\ntune, flags of `ftrun tune`\n");
  for (int i = 0; i < program->tune.count; i++) {
    text_printf(&line, "  %s %s", program->tune.at[i].flag, program->tune.at[i].value);
    put_line(&line, out);
  }
  text_free(&line);
}

void frontend_print_hypers(const Program *program, FILE *out) {
  static const Hyper head = {"name", "value", "type", "what it is", "from"};
  int name = widen_for(0, head.name), value = widen_for(0, head.value),
      from = widen_for(0, head.from);
  for (int i = 0; i < program->hypers.count; i++) {
    name = widen_for(name, program->hypers.at[i].name);
    value = widen_for(value, program->hypers.at[i].value);
    from = widen_for(from, program->hypers.at[i].from);
  }
  if (!program->hypers.count) {
    fprintf(out, "%s has no hypers\n", program->path);
    print_tune(program, out);
    return;
  }
  Text line = {0};
  fprintf(out, "hypers, set by -D NAME=VALUE\n");
  for (int i = -1; i < program->hypers.count; i++) {
    const Hyper *hyper = i < 0 ? &head : &program->hypers.at[i];
    text_printf(&line, "  %-*s  %-5s  %-*s  %-*s  %s", name, hyper->name, hyper->type, value,
                hyper->value, from, hyper->from, hyper->doc);
    put_line(&line, out);
  }
  if (program->presets.count) print_presets(program, &line, out);
  print_tune(program, out);
  text_free(&line);
}
