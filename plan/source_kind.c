/* source_kind: see source_kind.h. */
#include "plan/source_kind.h"
#include "plan/plan_text.h"
#include <math.h>
#include <string.h>
#include <strings.h>

const SourceKind source_kinds[] = {
#define SOURCE(name, form, reads, begins)                                                          \
  {#name, SOURCE_##form, SOURCE_##reads, begins, (int)sizeof begins - 1},
#include "plan/sources.def"
#undef SOURCE
};
const int source_kind_count = sizeof source_kinds / sizeof *source_kinds;

const SourceOption source_options[] = {
#define SOURCE_OPTION(source, name, type, words) {#source, #name, OPTION_##type, words},
#include "plan/source_options.def"
#undef SOURCE_OPTION
};
const int source_option_count = sizeof source_options / sizeof *source_options;

const SourceKind *source_kind_find(const char *name) {
  for (int i = 0; i < source_kind_count; i++)
    if (!strcmp(source_kinds[i].name, name)) return &source_kinds[i];
  return NULL;
}

const SourceKind *source_kind_guess(const uint8_t *head, size_t count) {
  for (int i = 0; i < source_kind_count; i++) {
    const SourceKind *kind = &source_kinds[i];
    size_t begins = (size_t)kind->begins_count;
    if (begins && count >= begins && !memcmp(head, kind->begins, begins)) return kind;
  }
  return NULL;
}

bool source_file_is_remote(const char *file, Text *why) {
  static const char *const ways[][2] = {
      {"http", " (curl -fLO ADDRESS)"},         {"https", " (curl -fLO ADDRESS)"},
      {"ftp", " (curl -fLO ADDRESS)"},          {"s3", " (aws s3 cp ADDRESS .)"},
      {"gs", " (gcloud storage cp ADDRESS .)"},
  };
  size_t length = strcspn(file, ":/");
  if (!length || strncmp(file + length, "://", 3) != 0) return false;
  const char *way = "";
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    if (strlen(ways[i][0]) == length && !strncasecmp(ways[i][0], file, length)) way = ways[i][1];
  bool is_here = length == 4 && !strncasecmp("file", file, length);
  if (is_here)
    text_printf(why, "%s is an address: name the path of the file", file);
  else
    text_printf(why,
                "%s is not on this machine, and no other files are read: copy it here first%s, "
                "and name the copy; or \"| COMMAND\" in place of the name reads what a command "
                "prints, with ftrun --allow-commands",
                file, way);
  return true;
}

bool source_is_single_kind(const SourceKind *kind) {
  return kind && (kind->form == SOURCE_SAMPLES || kind->form == SOURCE_SHARDS);
}

/* Of shards where the first ending that keys= has for it is an image's. */
bool source_makes_images(const DataSource *data) {
  static const char *const images[] = {"jpg", "jpeg", "png"};
  const SourceKind *kind = source_kind_find(data->kind);
  const char *keys = source_kind_text(data, "keys", "jpg");
  if (!source_is_single_kind(kind) || kind->form == SOURCE_SAMPLES)
    return source_is_single_kind(kind);
  size_t length = strcspn(keys, ";,");
  while (length && strchr(" \t\n", keys[length - 1])) length--;
  for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
    size_t count = strlen(images[i]);
    bool is_all = length == count || (length > count && strchr(" \t\n.", keys[length - count - 1]));
    if (is_all && !strncasecmp(keys + length - count, images[i], count)) return true;
  }
  return false;
}

void source_kind_list(Text *out) {
  for (int i = 0; i < source_kind_count; i++)
    text_printf(out, "%s%s",
                i == 0                      ? ""
                : i + 1 < source_kind_count ? ", "
                                            : " and ",
                source_kinds[i].name);
}

bool source_option_is_of(const SourceOption *option, const SourceKind *kind) {
  return !strcmp(option->source, "all") || !strcmp(option->source, kind->name);
}

const SourceOption *source_option_find(const SourceKind *kind, const char *name) {
  for (int i = 0; i < source_option_count; i++)
    if (source_option_is_of(&source_options[i], kind) && !strcmp(source_options[i].name, name))
      return &source_options[i];
  return NULL;
}

bool source_kind_has_options(const SourceKind *kind) {
  for (int i = 0; i < source_option_count; i++)
    if (!strcmp(source_options[i].source, kind->name)) return true;
  return false;
}

/* The next word of a list with spaces between; NULL: there is none. */
static const char *next_word(const char **list, int *length) {
  const char *word = *list + strspn(*list, " ");
  *length = (int)strcspn(word, " ");
  *list = word + *length;
  return *length ? word : NULL;
}

bool source_option_has_word(const SourceOption *option, const char *word) { return text_has_word(option->words, word); }

bool source_option_takes(const SourceOption *option, const DataOption *value) {
  double number = value->number;
  if (value->text && source_option_has_word(option, value->text)) return true;
  switch (option->type) {
  case OPTION_COUNT:
  case OPTION_WHOLE:
    return !value->text && number >= (option->type == OPTION_COUNT) && number <= 0x1p53 &&
           number == trunc(number);
  case OPTION_NUMBER:
    return !value->text && isfinite(number);
  case OPTION_TEXT:
    return value->text && *value->text;
  case OPTION_BOOL:
    return value->text && (!strcmp(value->text, "true") || !strcmp(value->text, "false"));
  case OPTION_WORD:
    break;
  }
  return false;
}

void source_option_wants(const SourceOption *option, Text *out) {
  static const char *const names[] = {
      [OPTION_COUNT] = "a positive integer", [OPTION_WHOLE] = "a whole number from 0",
      [OPTION_NUMBER] = "a number",          [OPTION_TEXT] = "a string that is not empty",
      [OPTION_BOOL] = "true or false",       [OPTION_WORD] = ""};
  const char *list = option->words, *word, *before = names[option->type];
  int length;
  text_printf(out, "%s", before);
  while ((word = next_word(&list, &length))) {
    bool is_last = !list[strspn(list, " ")];
    text_printf(out, "%s%.*s", !*before ? "" : is_last ? " or " : ", ", length, word);
    before = word;
  }
}

void source_option_print(const SourceKind *kind, const DataOption *value, Text *out) {
  const SourceOption *option = kind ? source_option_find(kind, value->name) : NULL;
  text_printf(out, "%s=", value->name);
  if (!value->text)
    plan_print_number(out, value->number);
  else if (option && (option->type == OPTION_BOOL || source_option_has_word(option, value->text)))
    text_printf(out, "%s", value->text);
  else
    text_printf(out, "\"%s\"", value->text);
}

/* "bytes has no option 'dtype'; it has limit" */
static bool unknown_source_option(const SourceKind *kind, const char *name, Text *why) {
  text_printf(why, "%s has no option '%s'; it has", kind->name, name);
  for (int i = 0, listed = 0; i < source_option_count; i++)
    if (source_option_is_of(&source_options[i], kind))
      text_printf(why, "%s %s", listed++ ? "," : "", source_options[i].name);
  return false;
}

bool source_kind_check(const SourceKind *kind, const DataSource *data, Text *why) {
  for (int i = 0; i < data->option_count; i++) {
    const DataOption *value = &data->options[i];
    const SourceOption *option = source_option_find(kind, value->name);
    if (!option) return unknown_source_option(kind, value->name, why);
    for (int j = 0; j < i; j++)
      if (!strcmp(data->options[j].name, value->name)) {
        text_printf(why, "%s is given twice", value->name);
        return false;
      }
    if (source_option_takes(option, value)) continue;
    source_option_print(kind, value, why);
    text_printf(why, ": it must be ");
    source_option_wants(option, why);
    return false;
  }
  return true;
}

static const DataOption *given_option(const DataSource *data, const char *name) {
  for (int i = 0; data && i < data->option_count; i++)
    if (!strcmp(data->options[i].name, name)) return &data->options[i];
  return NULL;
}

double source_kind_number(const DataSource *data, const char *option, double otherwise) {
  const DataOption *given = given_option(data, option);
  return given && !given->text ? given->number : otherwise;
}

const char *source_kind_text(const DataSource *data, const char *option, const char *otherwise) {
  const DataOption *given = given_option(data, option);
  return given && given->text ? given->text : otherwise;
}

bool source_kind_flag(const DataSource *data, const char *option, bool otherwise) {
  const char *given = source_kind_text(data, option, NULL);
  return given ? !strcmp(given, "true") : otherwise;
}
