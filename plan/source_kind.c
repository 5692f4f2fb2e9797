/* source_kind: see source_kind.h. */
#include "plan/source_kind.h"
#include <string.h>

const SourceKind source_kinds[] = {
#define SOURCE(name, form, reads, options, begins)                                                 \
  {#name, SOURCE_##form, SOURCE_##reads, options, begins, (int)sizeof begins - 1},
#include "plan/sources.def"
#undef SOURCE
};
const int source_kind_count = sizeof source_kinds / sizeof *source_kinds;

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

bool source_kind_takes(const SourceKind *kind, const char *option) {
  if (!strcmp(option, "limit")) return true;
  size_t length = strlen(option);
  for (const char *word = kind->options; *word;) {
    size_t count = strcspn(word, " ");
    if (count == length && !memcmp(word, option, count)) return true;
    word += count + (word[count] == ' ');
  }
  return false;
}

double source_kind_option(const DataSource *data, const char *option, double otherwise) {
  for (int i = 0; data && i < data->option_count; i++)
    if (!strcmp(data->option_names[i], option)) return data->option_values[i];
  return otherwise;
}

void source_kind_list(Text *out) {
  for (int i = 0; i < source_kind_count; i++)
    text_printf(out, "%s%s",
                i == 0                      ? ""
                : i + 1 < source_kind_count ? ", "
                                            : " and ",
                source_kinds[i].name);
}
