/* reference: see reference.h. A section goes from its heading to the one that is named as its end. A word's
 * row is one whose first cell has it in backquotes: `relu(x)`, `exp log sqrt`; of a function without a row, the first
 * paragraph that has it so. What is written as a call comes before what is not. */
#include "lsp/reference.h"
#include "base/text.h"
#include <stdbool.h>
#include <string.h>

extern const char embed_language_md[], embed_data_md[];

static const struct {
  const char *page, *from, *to;
} sections[] = {
    [REFERENCE_FUNCTION] = {embed_language_md, "## Functions", "## Data"},
    [REFERENCE_SOURCE] = {embed_language_md, "## Data", "### Parts of a split"},
    [REFERENCE_ORDER] = {embed_language_md, "### The order of training", "### Tables"},
    [REFERENCE_TRANSFORM] = {embed_data_md, "## Transforms", "## Mixup"},
    [REFERENCE_ENTRY] = {embed_language_md, "## Train", "### Optimisers"},
    [REFERENCE_OPTIMIZER] = {embed_language_md, "### Optimisers", "### Groups"},
    [REFERENCE_SCHEDULE] = {embed_language_md, "### Schedules", "### Finding"},
    [REFERENCE_STATEMENT] = {embed_language_md, "## Statements", "## Expressions"},
    [REFERENCE_DECLARATION] = {embed_language_md, "## Declarations", "## Types"},
};

static bool is_word_letter_of_page(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool begins_with(const char *text, const char *word) {
  return strncmp(text, word, strlen(word)) == 0;
}

static const char *next_line(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end + 1 : line + strlen(line);
}

/* Is the word what the code between backquotes is about: its first word, or, where it is a list of words, one
 * of them? `model = NAME` begins with it; in `f(x, y)` x does not count. */
static bool is_about(const char *code, size_t length, const char *word) {
  size_t size = strlen(word);
  if (length >= size && !memcmp(code, word, size) &&
      (length == size || !is_word_letter_of_page(code[size])))
    return true;
  for (size_t i = 0; i < length; i++)
    if (!is_word_letter_of_page(code[i]) && code[i] != ' ') return false;
  for (size_t i = 1; i + size <= length; i++)
    if (code[i - 1] == ' ' && !memcmp(code + i, word, size) &&
        (i + size == length || code[i + size] == ' '))
      return true;
  return false;
}

/* The code in backquotes in [text, end) that is about the word; NULL: none. */
static const char *find_code(const char *text, const char *end, const char *word, size_t *length) {
  for (const char *c = text; c < end; c++) {
    if (*c != '`') continue;
    const char *close = memchr(c + 1, '`', (size_t)(end - c - 1));
    if (!close) return NULL;
    *length = (size_t)(close - c - 1);
    if (is_about(c + 1, *length, word)) return c + 1;
    c = close;
  }
  return NULL;
}

/* Markdown without the targets of its links, and without the backslashes of a table. */
static void append_without_links(Text *out, const char *text, const char *end) {
  for (const char *c = text; c < end; c++) {
    const char *close = *c == '[' ? memchr(c, ']', (size_t)(end - c)) : NULL;
    bool is_link =
        close && close + 1 < end && close[1] == '(' && memchr(close, ')', (size_t)(end - close));
    if (is_link) {
      append_without_links(out, c + 1, close);
      c = memchr(close, ')', (size_t)(end - close));
    } else if (!(*c == '\\' && c + 1 < end && c[1] == '|')) {
      text_append(out, *c == '\n' ? " " : c, 1);
    }
  }
}

/* The end of a cell, at its |; one behind a backslash is none. */
static const char *cell_end(const char *cell, const char *end) {
  for (const char *c = cell; c < end; c++)
    if (*c == '|' && c[-1] != '\\') return c;
  return end;
}

static const char *trim_cell(const char *cell, const char **end) {
  while (cell < *end && *cell == ' ') cell++;
  while (*end > cell && (*end)[-1] == ' ') --*end;
  return cell;
}

/* Cells behind the first, each behind the word above its column. */
static const char *row_text(Arena *arena, const char *row, const char *head) {
  Text out = {0};
  const char *end = row + strcspn(row, "\n"), *head_end = head + strcspn(head, "\n");
  const char *cell = cell_end(row + 1, end), *title = cell_end(head + 1, head_end);
  while (cell < end && title < head_end) {
    const char *cell_stop = cell_end(cell + 1, end), *title_stop = cell_end(title + 1, head_end);
    const char *to = cell_stop, *from = trim_cell(cell + 1, &to), *name_to = title_stop,
               *name = trim_cell(title + 1, &name_to);
    if (to > from && name_to > name)
      text_printf(&out, "%s*%.*s:* ", out.count ? "  \n" : "", (int)(name_to - name), name);
    else if (to > from && out.count)
      text_append(&out, "  \n", 3);
    append_without_links(&out, from, to);
    cell = cell_stop;
    title = title_stop;
  }
  const char *text = arena_strdup(arena, text_cstr(&out));
  text_free(&out);
  return text;
}

static const char *paragraph_end(const char *line, const char *stop) {
  while (line < stop && *line != '\n' && *line != '|' && *line != '#') line = next_line(line);
  return line < stop ? line : stop;
}

/* Is the code a call of the word, `relu(x)`? */
static bool is_call(const char *code, size_t length, const char *word) {
  size_t size = strlen(word);
  return length > size && code[size] == '(' && memcmp(code, word, size) == 0;
}

typedef struct {
  Arena *arena;
  const char *from, *stop, *word;
  bool calls; /* only what is written as a call */
  const char *signature;
} Search;

static const char *find_page_row(Search *search) {
  const char *head = NULL;
  for (const char *line = next_line(search->from); line < search->stop; line = next_line(line)) {
    if (*line != '|') head = NULL;
    if (*line != '|' || begins_with(line, "|--")) continue;
    if (!head) head = line;
    size_t length = 0;
    const char *cell = cell_end(line + 1, line + strcspn(line, "\n"));
    const char *code = head == line ? NULL : find_code(line, cell, search->word, &length);
    bool is_called = code && is_call(code, length, search->word);
    if (!code || (search->calls && !is_called)) continue;
    if (is_called) search->signature = arena_strndup(search->arena, code, length);
    return row_text(search->arena, line, head);
  }
  return NULL;
}

static const char *find_paragraph(Search *search) {
  for (const char *line = next_line(search->from); line < search->stop;) {
    const char *end = paragraph_end(line, search->stop);
    size_t length = 0;
    bool is_text = end > line && *line != ' ';
    const char *code = is_text ? find_code(line, end, search->word, &length) : NULL;
    bool is_called = code && is_call(code, length, search->word);
    if (code && (is_called || !search->calls)) {
      Text out = {0};
      append_without_links(&out, line, end);
      const char *text = arena_strdup(search->arena, text_cstr(&out));
      text_free(&out);
      if (is_called) search->signature = arena_strndup(search->arena, code, length);
      return text;
    }
    line = end == line ? next_line(line) : end;
  }
  return NULL;
}

const char *reference_find(Arena *arena, ReferenceKind kind, const char *word,
                           const char **signature) {
  const char *from = strstr(sections[kind].page, sections[kind].from);
  const char *stop = from ? strstr(from + 1, sections[kind].to) : NULL, *found = NULL;
  Search search = {.arena = arena, .from = from, .stop = stop, .word = word, .calls = true};
  *signature = NULL;
  if (!stop || !*word) return NULL;
  bool has_sentences = kind == REFERENCE_FUNCTION;
  found = find_page_row(&search);
  if (!found && has_sentences) found = find_paragraph(&search);
  search.calls = false;
  if (!found) found = find_page_row(&search);
  if (!found && has_sentences) found = find_paragraph(&search);
  *signature = search.signature;
  return found;
}
