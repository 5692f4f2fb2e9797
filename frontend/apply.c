/* apply: see apply.h. Places are those that the front end notes for its messages; how far a value reaches is read off
 * the text, and taken only if that is one number, word or string that means what the program has. */
#include "frontend/apply.h"
#include "base/text.h"
#include "frontend/ast.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  const char *name, *value; /* "width" or "train.lr"; as on the command line */
  int hyper, setting;       /* one of them -1 */
  Loc loc;
  const char *old; /* as it stands there; NULL: it is not there */
  size_t at, length;
  const char *text; /* what takes its place */
  bool is_there;    /* the file has this value already */
} Edit;

typedef struct {
  Arena *arena;
  Diag *diag; /* of the file as it is */
  const char *path, *source;
  size_t length;
  Program before, wanted;
  Edit *edit;
  int count;
  bool is_fine;
} Applying;

/* ── values as text ───────────────────────────────────────────────────────────────────────── */
static bool apply_word_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool is_plain_word(const char *text) {
  if (!isalpha((unsigned char)*text) && *text != '_') return false;
  while (apply_word_letter(*text)) text++;
  return !*text;
}

static const char *quoted_text(Arena *arena, const char *value) {
  return ast_to_text(arena, &(Ast){.kind = AST_STRING, .name = value});
}

static const char *bool_text(const char *value) {
  return *value == '1' || *value == 't' ? "true" : "false";
}

/* A float stays one where its type is that of its value. */
static const char *float_text(Arena *arena, const char *value) {
  return strpbrk(value, ".eEnN") ? value : arena_printf(arena, "%s.0", value);
}

/* As the file is to have it; old: what stands there, or NULL. */
static const char *text_of_value(const Applying *a, const Edit *edit) {
  char *end;
  const char *value = edit->value;
  (void)strtod(value, &end);
  bool is_number = *value && !*end;
  if (edit->hyper >= 0) {
    const char *type = a->before.hypers.at[edit->hyper].type;
    if (!strcmp(type, "str")) return quoted_text(a->arena, value);
    if (!strcmp(type, "bool")) return bool_text(value);
    return !strcmp(type, "float") ? float_text(a->arena, value) : value;
  }
  SettingKind kind = setting_info[edit->setting].kind;
  if (kind == SET_BOOL) return bool_text(value);
  if (is_number && kind != SET_STR) return value;
  bool is_in_section = !edit->old && strchr(strchr(edit->name, '.') + 1, '.'); /* where a word is a name */
  bool is_quoted = is_in_section || (edit->old && *edit->old == '"');
  return is_plain_word(value) && !is_quoted ? value : quoted_text(a->arena, value);
}

/* `schedule { warmup = 9 }` of schedule.warmup */
static const char *nested_text(Arena *arena, const char *name, const char *value) {
  const char *dot, *open = "", *close = "";
  for (; (dot = strchr(name, '.')); name = dot + 1) {
    open = arena_printf(arena, "%s%.*s { ", open, (int)(dot - name), name);
    close = arena_printf(arena, "%s }", close);
  }
  return arena_printf(arena, "%s%s = %s%s", open, name, value, close);
}

static const char *by_hand(const Applying *a, const Edit *edit) {
  return nested_text(a->arena, edit->name, text_of_value(a, edit));
}

__attribute__((format(printf, 3, 4))) static void apply_fail(Applying *a, const Edit *edit,
                                                             const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const char *why = arena_vprintf(a->arena, format, arguments);
  va_end(arguments);
  a->is_fine = false;
  diag_error(a->diag, edit->loc,
             "'%s' is not written into the file: %s; to have it, write %s by hand", edit->name, why,
             by_hand(a, edit));
}

/* All that is not there yet. */
static const char *all_by_hand(const Applying *a) {
  const char *all = "";
  for (int i = 0; i < a->count; i++)
    if (!a->edit[i].is_there)
      all = arena_printf(a->arena, "%s%s%s", all, *all ? ", " : "", by_hand(a, &a->edit[i]));
  return all;
}

/* ── the text ─────────────────────────────────────────────────────────────────────────────── */
static size_t apply_offset(const Applying *a, Loc loc) {
  size_t at = 0;
  for (uint32_t line = 1; line < loc.line && at < a->length; at++) line += a->source[at] == '\n';
  return at + loc.column - 1 < a->length ? at + loc.column - 1 : a->length;
}

/* Behind spaces, line ends and comments. */
static size_t skip_blank(const char *text, size_t at) {
  for (;;) {
    at += strspn(text + at, " \t\r\n\f");
    const char *end;
    if (!strncmp(text + at, "//", 2))
      at += strcspn(text + at, "\n");
    else if (!strncmp(text + at, "/*", 2) && (end = strstr(text + at + 2, "*/")))
      at = (size_t)(end + 2 - text);
    else
      return at;
  }
}

static size_t string_length(const char *text) {
  size_t i = 1;
  while (text[i] && text[i] != '"' && text[i] != '\n') i += text[i] == '\\' && text[i + 1] ? 2 : 1;
  return text[i] == '"' ? i + 1 : 0;
}

/* One number, word or string; 0: something else. */
static size_t literal_length(const char *text) {
  if (*text == '"') return string_length(text);
  size_t i = *text == '-';
  if (isdigit((unsigned char)text[i])) {
    while (isdigit((unsigned char)text[i]) || text[i] == '_') i++;
    if (text[i] == '.' && isdigit((unsigned char)text[i + 1])) i++;
    while (isdigit((unsigned char)text[i]) || text[i] == '_') i++;
    size_t digits = (size_t)(strchr("eE", text[i]) && text[i] ? 1 + strspn(text + i + 1, "+-") : 0);
    if (digits && isdigit((unsigned char)text[i + digits]))
      for (i += digits; isdigit((unsigned char)text[i]);) i++;
    return apply_word_letter(text[i]) || text[i] == '.' ? 0 : i;
  }
  if (i || !(isalpha((unsigned char)*text) || *text == '_')) return 0;
  while (apply_word_letter(text[i])) i++;
  return i;
}

/* Does an expression go on behind it? `cosine(` and `50 steps` are as good as the word and the number. */
static bool apply_goes_on(const char *text, size_t end) {
  static const char *const words[] = {"if", "else", "and", "or", "on", "per", "of", "in", NULL};
  size_t next = skip_blank(text, end);
  bool is_same_line = !memchr(text + end, '\n', next - end);
  if (text[next] && strchr("+-*/%@=<>!.:|^&?[", text[next])) return true;
  if (text[next] == '(') return is_same_line && !apply_word_letter(text[end - 1]);
  for (int i = 0; words[i]; i++)
    if (!strncmp(text + next, words[i], strlen(words[i])) &&
        !apply_word_letter(text[next + strlen(words[i])]))
      return true;
  return false;
}

/* Does the literal say what the program has? If not, it names something else, or is part of something. */
static bool says(const Applying *a, const Edit *edit, const char *literal) {
  char digits[64], *end;
  int n = 0;
  const char *value;
  const SettingValue *of = edit->hyper < 0 ? &a->before.settings[edit->setting] : NULL;
  for (const char *c = literal; *c && n < 63; c++)
    if (*c != '_') digits[n++] = *c;
  digits[n] = 0;
  double number = !strcmp(literal, "true")    ? 1
                  : !strcmp(literal, "false") ? 0
                                              : strtod(digits, &end);
  bool is_number = !strcmp(literal, "true") || !strcmp(literal, "false") || (n && !*end);
  if (!of) {
    value = a->before.hypers.at[edit->hyper].value;
    if (*literal == '"') return true; /* a string has no other meaning */
    return !strcmp(value, literal) || (is_number && strtod(value, NULL) == number);
  }
  if (!strcmp(literal, "none") || !strcmp(literal, "auto")) return true;
  if (setting_info[edit->setting].kind != SET_STR) return is_number && of->number == number;
  return *literal == '"' || (of->text && !strcmp(of->text, literal));
}

/* ── where each goes ──────────────────────────────────────────────────────────────────────── */
static void apply_find_value(Applying *a, Edit *edit) {
  if (edit->loc.file != 1) {
    apply_fail(a, edit, "it stands in %s, and only the file itself is changed",
               diag_path(a->diag, edit->loc));
    return;
  }
  edit->at = apply_offset(a, edit->loc);
  edit->length = literal_length(a->source + edit->at);
  const char *old = arena_strndup(a->arena, a->source + edit->at, edit->length);
  if (!edit->length || apply_goes_on(a->source, edit->at + edit->length) || !says(a, edit, old)) {
    apply_fail(a, edit, "here it is no plain value");
    return;
  }
  edit->old = old;
  edit->text = text_of_value(a, edit);
}

/* The bracket that closes the first one behind `at`; the text's length if there is none. */
static size_t block_end(const char *text, size_t at) {
  int depth = 0;
  for (;;) {
    at = skip_blank(text, at);
    if (!text[at]) return at;
    if (text[at] == '"' && string_length(text + at)) {
      at += string_length(text + at);
      continue;
    }
    if (text[at] == '{') depth++;
    if (text[at] == '}' && --depth <= 0) return at;
    at++;
  }
}

/* A setting that the file does not have becomes the last entry of its block. */
static void apply_find_block(Applying *a, Edit *edit) {
  const char *name = edit->name, *s = a->source;
  Loc loc = !strncmp(name, "train.", 6)          ? a->before.train_loc
            : !strncmp(name, "data.", 5)         ? a->before.data_loc
            : !strncmp(name, "distributed.", 12) ? a->before.distributed_loc
                                                 : (Loc){0};
  edit->loc = loc;
  if (loc.file != 1) {
    apply_fail(a, edit, loc.file ? "its block stands in another file" : "there is no block for it");
    return;
  }
  const char *entry = nested_text(a->arena, strchr(name, '.') + 1, text_of_value(a, edit));
  size_t end = block_end(s, apply_offset(a, loc)), line = end, last = end;
  while (line && strchr(" \t", s[line - 1])) line--;
  while (last && strchr(" \t\r\n", s[last - 1])) last--;
  if (line && s[line - 1] == '\n') { /* the bracket has a line of its own: so has the entry */
    size_t first = last;
    while (first && s[first - 1] != '\n') first--;
    int indent = (int)strspn(s + first, " \t");
    bool is_opening = last && s[last - 1] == '{';
    edit->at = line;
    edit->text = arena_printf(a->arena, "%.*s%s%s%s", indent, s + first, is_opening ? "  " : "",
                              entry, line > 1 && s[line - 2] == '\r' ? "\r\n" : "\n");
    return;
  }
  bool is_first = last && strchr("{;", s[last - 1]);
  edit->at = last;
  edit->text =
      arena_printf(a->arena, "%s%s%s", is_first ? " " : "; ", entry, last == end ? " " : "");
}

static bool apply_same_setting(const SettingValue *a, const SettingValue *b) {
  return a->number == b->number && !strcmp(a->text ? a->text : "", b->text ? b->text : "");
}

static bool apply_has_value(const Applying *a, const Edit *edit) {
  int at = edit->hyper;
  return at >= 0 ? !strcmp(a->before.hypers.at[at].value, a->wanted.hypers.at[at].value)
                 : apply_same_setting(&a->before.settings[edit->setting],
                                      &a->wanted.settings[edit->setting]);
}

/* ── the same program? ────────────────────────────────────────────────────────────────────── */
static char *graph_text(Arena *arena, const Graph *graph) {
  char *bytes = NULL;
  size_t count = 0;
  FILE *file = graph ? open_memstream(&bytes, &count) : NULL;
  if (!file) return arena_strdup(arena, "");
  graph_print(graph, file);
  fclose(file);
  char *copy = arena_strdup(arena, bytes);
  free(bytes);
  return copy;
}

/* What differs, or NULL. */
static const char *difference(Arena *arena, const Program *a, const Program *b) {
  for (int i = 0; i < a->hypers.count; i++)
    if (i >= b->hypers.count || strcmp(a->hypers.at[i].value, b->hypers.at[i].value) ||
        strcmp(a->hypers.at[i].type, b->hypers.at[i].type))
      return a->hypers.at[i].name;
  for (int i = 0; i < setting_count; i++)
    if (!apply_same_setting(&a->settings[i], &b->settings[i])) return setting_info[i].key;
  for (int i = 0; i < 2; i++)
    if (strcmp(graph_text(arena, program_graph(a, i)), graph_text(arena, program_graph(b, i))))
      return "a parameter's share of a setting";
  return NULL;
}

/* ── all of it ────────────────────────────────────────────────────────────────────────────── */
/* Without a word if it is fine; else once more, aloud. */
static bool compile_quietly(const Applying *a, Diag *aloud, Diag *quiet, const char *text,
                            size_t length, const FrontendOptions *options, Program *out) {
  diag_init(quiet, a->arena, aloud->out);
  quiet->is_coloured = aloud->is_coloured;
  quiet->is_quiet = true;
  bool fine = frontend_compile_bytes(a->arena, quiet, a->path, text, length, options, out);
  quiet->is_quiet = false;
  Program again;
  if (!fine) frontend_compile_bytes(a->arena, aloud, a->path, text, length, options, &again);
  return fine;
}

/* Which of them each choice is of; and the options that have all of them. */
static bool read_choices_of(Applying *a, Diag *diag, const FrontendOptions *options,
                            const char *const *choices, FrontendOptions *with) {
  const char **defines = ARENA_ARRAY(a->arena, const char *, options->define_count + a->count + 1);
  const char **sets = ARENA_ARRAY(a->arena, const char *, options->set_count + a->count + 1);
  for (int i = 0; i < options->define_count; i++) defines[i] = options->defines[i];
  for (int i = 0; i < options->set_count; i++) sets[i] = options->sets[i];
  *with = *options;
  with->defines = defines;
  with->sets = sets;
  for (int i = 0; i < a->count; i++) {
    const char *equals = strchr(choices[i], '=');
    Edit *edit = &a->edit[i];
    char key[160];
    *edit = (Edit){.name = arena_strndup(a->arena, choices[i], (size_t)(equals - choices[i])),
                   .value = equals + 1,
                   .hyper = -1,
                   .setting = -1};
    for (int h = 0; h < a->before.hypers.count; h++)
      if (!strcmp(a->before.hypers.at[h].name, edit->name)) edit->hyper = h;
    if (edit->hyper >= 0) {
      edit->loc = a->before.hypers.at[edit->hyper].loc;
      defines[with->define_count++] = choices[i];
    } else if ((edit->setting = setting_find_short(edit->name, key, sizeof key)) >= 0) {
      edit->name = arena_strdup(a->arena, key);
      edit->value = setting_off(edit->setting, edit->value);
      edit->loc = a->before.settings[edit->setting].loc;
      sets[with->set_count++] = arena_printf(a->arena, "%s=%s", key, edit->value);
    } else {
      diag_error(diag, (Loc){0}, "--apply %s: there is no such hyper or setting", choices[i]);
      return false;
    }
    for (int k = 0; k < i; k++)
      if (!strcmp(a->edit[k].name, edit->name)) {
        diag_error(diag, (Loc){0}, "--apply %s: the name is given twice", choices[i]);
        return false;
      }
  }
  return true;
}

static int compare_edits(const void *left, const void *right) {
  const Edit *a = *(const Edit *const *)left, *b = *(const Edit *const *)right;
  return a->at != b->at ? (a->at < b->at ? -1 : 1) : a < b ? -1 : a > b;
}

/* The new text; false: two values would have to stand in one place. */
static bool edit_text(Applying *a, Text *out) {
  const Edit **order = ARENA_ARRAY(a->arena, const Edit *, a->count + 1);
  int count = 0;
  size_t at = 0;
  for (int i = 0; i < a->count; i++)
    if (!a->edit[i].is_there) order[count++] = &a->edit[i];
  qsort(order, (size_t)count, sizeof *order, compare_edits);
  for (int i = 0; i < count; i++) {
    if (order[i]->at < at) {
      apply_fail(a, order[i], "another value stands in the same place");
      return false;
    }
    text_append(out, a->source + at, order[i]->at - at);
    text_append(out, order[i]->text, strlen(order[i]->text));
    at = order[i]->at + order[i]->length;
  }
  text_append(out, a->source + at, a->length - at);
  return true;
}

/* Over the file, which keeps its permissions, and which nobody has changed since it was read. */
static int replace_source(const Applying *a, const Text *text) {
  struct stat info;
  Text now = {0}, temporary = {0};
  int fd = -1;
  char *real = realpath(a->path, NULL); /* of a link its target is replaced */
  int error = real ? text_read_file(&now, real) : errno;
  if (!error && (now.count != a->length || memcmp(text_cstr(&now), a->source, now.count)))
    error = ESTALE;
  if (!error && stat(real, &info) != 0) error = errno;
  if (!error && (access(real, W_OK) != 0 || !(info.st_mode & 0222))) error = EACCES;
  if (!error) error = text_open_beside(real, &temporary, &fd);
  if (fd >= 0 && fchmod(fd, info.st_mode & 07777) != 0) error = errno;
  if (fd >= 0 && fchown(fd, info.st_uid, info.st_gid) != 0)
    error = error ? error : 0; /* as it may be */
  if (!error) error = text_write_all(fd, text->at, text->count);
  if (!error && fsync(fd) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (fd >= 0 && close(fd) != 0 && !error) error = errno;
  if (!error && rename(temporary.at, real) != 0) error = errno;
  if (fd >= 0 && error) unlink(temporary.at);
  if (!error) text_sync_parent(real);
  free(real);
  text_free(&now);
  text_free(&temporary);
  return error;
}

static void tell_edits(const Applying *a, FILE *out) {
  for (int i = 0; i < a->count; i++) {
    const Edit *edit = &a->edit[i];
    if (edit->is_there)
      fprintf(out, "%s: %s is %s already\n", a->path, edit->name, edit->value);
    else if (edit->old)
      fprintf(out, "%s:%u: %s: %s -> %s\n", a->path, edit->loc.line, edit->name, edit->old,
              edit->text);
    else
      fprintf(out, "%s: %s: not there -> %s\n", a->path, edit->name, text_of_value(a, edit));
  }
}

static bool write_edited(Applying *a, Diag *diag, const FrontendOptions *options) {
  Text text = {0};
  Diag quiet;
  Program after;
  bool fine = edit_text(a, &text);
  if (fine && !compile_quietly(a, diag, &quiet, text_cstr(&text), text.count, options, &after)) {
    diag_error(diag, (Loc){0},
               "%s stays as it is: with these values in it, it does not compile; to have them, "
               "write %s by hand, and change what does not go with that",
               a->path, all_by_hand(a));
    fine = false;
  }
  const char *other = fine ? difference(a->arena, &a->wanted, &after) : NULL;
  if (other) {
    diag_error(diag, (Loc){0},
               "%s stays as it is: with these values in it, %s would not be what -D and --set make "
               "of it; to have them, write %s by hand, and see to that",
               a->path, other, all_by_hand(a));
    fine = false;
  }
  int error = fine ? replace_source(a, &text) : 0;
  if (error) {
    if (text_is_fault(error)) diag->is_fault = true;
    diag_error(diag, (Loc){0}, "%s stays as it is: %s", a->path,
               error == ESTALE ? "it was changed meanwhile" : text_error(error));
  }
  text_free(&text);
  return fine && !error;
}

static bool apply_text(Applying *a, Diag *diag, const FrontendOptions *options,
                       const char *const *choices) {
  FrontendOptions with;
  Diag before, wanted;
  bool is_new = false;
  if (!compile_quietly(a, diag, &before, a->source, a->length, options, &a->before) ||
      !read_choices_of(a, diag, options, choices, &with) ||
      !compile_quietly(a, diag, &wanted, a->source, a->length, &with, &a->wanted))
    return false;
  a->diag = &before;
  for (int i = 0; i < a->count; i++) {
    Edit *edit = &a->edit[i];
    edit->is_there = apply_has_value(a, edit);
    if (edit->is_there) continue;
    is_new = true;
    if (edit->loc.file)
      apply_find_value(a, edit);
    else
      apply_find_block(a, edit);
  }
  if (a->is_fine && is_new && write_edited(a, diag, options)) return true;
  if (!a->is_fine) diag->errors++; /* told by the other */
  return a->is_fine && !is_new;
}

bool apply_write(Arena *arena, Diag *diag, const char *path, const FrontendOptions *options,
                 const char *const *choices, int count, FILE *out) {
  Text text = {0};
  int error = text_read_file(&text, path);
  if (error) {
    if (text_is_fault(error)) diag->is_fault = true;
    diag_error(diag, (Loc){0}, "cannot read '%s': %s", path, text_error(error));
    text_free(&text);
    return false;
  }
  Applying a = {.arena = arena,
                .path = path,
                .source = text_cstr(&text),
                .length = text.count,
                .edit = ARENA_ARRAY(arena, Edit, count),
                .count = count,
                .is_fine = true};
  bool fine = apply_text(&a, diag, options, choices);
  if (fine) tell_edits(&a, out);
  text_free(&text);
  return fine;
}
