/* space_text: dimensions and their values as text; see space.h. */
#include "runtime/tune/space.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMS                                                                                      \
  "log(1e-5, 1e-1), range(0, 0.5), range(0, 1, step=0.1), int(1, 8), log_int(16, 1024) or [64, "   \
  "128, 256]"

typedef struct {
  const char *whole, *at;
} Scan;

static void skip_blanks(Scan *scan) {
  while (isspace((unsigned char)*scan->at)) scan->at++;
}

static bool take_sign(Scan *scan, char sign) {
  skip_blanks(scan);
  if (*scan->at != sign) return false;
  scan->at++;
  return true;
}

/* A word of what settings and hypers are made of; blanks around it are left out. */
static size_t take_space_word(Scan *scan, const char **word) {
  skip_blanks(scan);
  *word = scan->at;
  while (isalnum((unsigned char)*scan->at) || (*scan->at && strchr("_.+-/:%", *scan->at)))
    scan->at++;
  return (size_t)(scan->at - *word);
}

/* One of [ … ]: such a word, or any text in quotes. False: wrong says why. */
static bool take_choice(Scan *scan, const char **word, size_t *length, const char **wrong) {
  skip_blanks(scan);
  char quote = *scan->at;
  if (quote != '"' && quote != '\'') {
    *length = take_space_word(scan, word);
    *wrong = "expected values with commas between them, and ] behind them; a text of other letters than a-z, 0-9 and _ . + - / : % is "
             "written in quotes";
    return *length > 0;
  }
  *word = ++scan->at;
  while (*scan->at && *scan->at != quote) {
    unsigned char letter = (unsigned char)*scan->at++;
    *wrong = "a text in quotes has no control characters and no quotes in it";
    if (letter < ' ' || letter == 0x7f || letter == '"') return false;
  }
  *length = (size_t)(scan->at - *word);
  *wrong = "a text has no quote at its end";
  if (*scan->at != quote) return false;
  scan->at++;
  return true;
}

/* The other way. */
static void append_choice(const char *choice, Text *out) {
  Scan scan = {choice, choice};
  const char *word;
  bool is_word = take_space_word(&scan, &word) && !*scan.at && word == choice;
  text_printf(out, is_word ? "%s" : "\"%s\"", choice);
}

static bool take_space_number(Scan *scan, double *value) {
  skip_blanks(scan);
  char *end;
  errno = 0;
  *value = strtod(scan->at, &end);
  if (end == scan->at || !isfinite(*value)) return false;
  scan->at = end;
  return true;
}

static Status wrong(const Scan *scan, const char *why) {
  bool is_long = strlen(scan->whole) > 200;
  return status_fail(STATUS_USER, "--space %.200s%s: %s", scan->whole, is_long ? "…" : "", why);
}

static Status parse_dim_range(Scan *scan, Dim *dim, const char *form, size_t length) {
  bool is_int = strstr(form, "int") && strstr(form, "int") < form + length;
  dim->kind = is_int ? DIM_INT : DIM_REAL;
  dim->is_log = length >= 3 && !memcmp(form, "log", 3);
  dim->step = is_int;
  const char *word;
  if (!take_space_number(scan, &dim->low) || !take_sign(scan, ',') ||
      !take_space_number(scan, &dim->high))
    return wrong(scan, "expected two numbers, the least and the largest");
  if (take_sign(scan, ',')) {
    size_t count = take_space_word(scan, &word);
    if (count != 4 || memcmp(word, "step", 4) || !take_sign(scan, '=') ||
        !take_space_number(scan, &dim->step) || !(dim->step > 0))
      return wrong(scan, "behind the two numbers only step=S may stand, with S above 0");
    if (dim->is_log) return wrong(scan, "a logarithmic range has no step");
  }
  if (!take_sign(scan, ')')) return wrong(scan, "expected ) behind the numbers");
  if (!(dim->low <= dim->high)) return wrong(scan, "the least number is above the largest");
  if (dim->is_log && !(dim->low > 0)) return wrong(scan, "a logarithm needs numbers above 0");
  bool is_whole =
      floor(dim->low) == dim->low && floor(dim->high) == dim->high && floor(dim->step) == dim->step;
  if (is_int && (!is_whole || fabs(dim->low) > 1e15 || fabs(dim->high) > 1e15))
    return wrong(scan, "int takes whole numbers");
  if (dim->step > 0 && (dim->high - dim->low) / dim->step > 1e15)
    return wrong(scan, "there are too many steps in this range");
  return STATUS_OK;
}

static bool is_number(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && !*end && isfinite(*value);
}

static Status parse_choices(Scan *scan, Dim *dim) {
  dim->kind = DIM_CHOICE;
  dim->choice = calloc(SPACE_MOST_CHOICES, sizeof *dim->choice);
  if (!dim->choice) return status_fail(STATUS_FAULT, "out of memory");
  size_t length, all = 0;
  do {
    const char *word, *why;
    if (!take_choice(scan, &word, &length, &why)) return wrong(scan, why);
    if (length >= SPACE_VALUE) return wrong(scan, "a value is longer than 1023 letters");
    if ((all += length) > SPACE_VALUES) return wrong(scan, "the values are longer than 7000 letters together");
    if (dim->choice_count == SPACE_MOST_CHOICES) return wrong(scan, "at most 64 values");
    memcpy(dim->choice[dim->choice_count], word, length);
    dim->choice[dim->choice_count][length] = 0;
    for (int i = 0; i < dim->choice_count; i++)
      if (!strcmp(dim->choice[i], dim->choice[dim->choice_count]))
        return wrong(scan, "a value is there twice");
    dim->choice_count++;
  } while (take_sign(scan, ','));
  if (!take_sign(scan, ']')) return wrong(scan, "expected ] behind the values");
  double before = 0, value = 0;
  int grows = 0, falls = 0;
  for (int i = 0; i < dim->choice_count; i++, before = value) {
    if (!is_number(dim->choice[i], &value)) return STATUS_OK;
    grows += i && value > before;
    falls += i && value < before;
  }
  dim->is_ordered = dim->choice_count > 2 && !(grows && falls);
  return STATUS_OK;
}

/* "if optimizer=sgd|lion" */
static Status parse_condition(const Space *space, Scan *scan, Dim *dim) {
  const char *word;
  size_t length = take_space_word(scan, &word);
  dim->parent = space_find(space, word, length);
  if (dim->parent < 0)
    return wrong(scan, "behind `if` stands a dimension that an earlier --space gives");
  const Dim *parent = &space->dim[dim->parent];
  if (parent->kind != DIM_CHOICE)
    return wrong(scan, "a condition asks for one of [ … ], not for a range");
  if (!take_sign(scan, '=')) return wrong(scan, "expected `if NAME=VALUE`");
  do {
    double value;
    char text[SPACE_VALUE];
    const char *why;
    if (!take_choice(scan, &word, &length, &why)) return wrong(scan, "expected `if NAME=VALUE`");
    snprintf(text, sizeof text, "%.*s", (int)length, word);
    if (length >= sizeof text || !dim_read(parent, text, &value))
      return wrong(scan, "the condition names a value that its dimension does not have");
    dim->parent_choices |= (uint64_t)1 << (int)value;
  } while (take_sign(scan, '|'));
  return STATUS_OK;
}

static Status parse_dim(const Space *space, Scan *scan, Dim *dim) {
  const char *word;
  size_t length = take_space_word(scan, &word);
  if (!length || length >= SPACE_NAME || !take_sign(scan, '='))
    return wrong(scan, "expected NAME=RANGE, where a range is " FORMS);
  memcpy(dim->name, word, length);
  if (space_find(space, word, length) >= 0) return wrong(scan, "the name is given twice");
  if (take_sign(scan, '[')) {
    STATUS_TRY(parse_choices(scan, dim));
  } else {
    static const char *const forms[] = {"log", "range", "int", "log_int", NULL};
    char form[16] = "";
    length = take_space_word(scan, &word);
    snprintf(form, sizeof form, "%.*s", (int)length, word);
    if (!text_is_one_of(form, forms) || length >= sizeof form || !take_sign(scan, '('))
      return wrong(scan, "a range is " FORMS);
    STATUS_TRY(parse_dim_range(scan, dim, form, length));
  }
  skip_blanks(scan);
  if (!strncmp(scan->at, "if", 2) && isspace((unsigned char)scan->at[2])) {
    scan->at += 2;
    STATUS_TRY(parse_condition(space, scan, dim));
    skip_blanks(scan);
  }
  return *scan->at ? wrong(scan, "there is more behind the range than belongs there") : STATUS_OK;
}

Status space_add(Space *space, const char *text) {
  Scan scan = {text, text};
  if (space->count == SPACE_MOST) return status_fail(STATUS_USER, "--space: at most 64 dimensions");
  Dim dim = {.parent = -1};
  Status status = parse_dim(space, &scan, &dim);
  if (status)
    free(dim.choice);
  else
    space->dim[space->count++] = dim;
  return status;
}

void dim_print(const Dim *dim, double value, Text *out) {
  if (dim->kind == DIM_CHOICE)
    text_printf(out, "%s", dim->choice[(int)value]);
  else if (dim->kind == DIM_INT)
    text_printf(out, "%.0f", value);
  else
    text_append_shortest(out, value);
}

void dim_show(const Dim *dim, double value, Text *out) {
  if (dim->kind == DIM_CHOICE)
    append_choice(dim->choice[(int)value], out);
  else
    dim_print(dim, value, out);
}

bool dim_read(const Dim *dim, const char *text, double *value) {
  if (dim->kind == DIM_CHOICE) {
    for (int i = 0; i < dim->choice_count; i++)
      if (!strcmp(text, dim->choice[i])) return *value = i, true;
    return false;
  }
  if (!is_number(text, value)) return false;
  if (dim->step > 0 && fabs(*value - dim_nearest(dim, *value)) < 1e-9 * dim->step) *value = dim_nearest(dim, *value);
  return *value >= dim->low && *value <= dim->high &&
         (dim->kind != DIM_INT || floor(*value) == *value);
}

void dim_describe(const Space *space, int dim, Text *out) {
  const Dim *d = &space->dim[dim];
  text_printf(out, "%s=", d->name);
  if (d->kind == DIM_CHOICE) {
    for (int i = 0; i < d->choice_count; i++) {
      text_printf(out, i ? ", " : "[");
      append_choice(d->choice[i], out);
    }
    text_printf(out, "]");
  } else {
    text_printf(out, "%s(",
                d->kind == DIM_REAL ? d->is_log ? "log" : "range"
                : d->is_log         ? "log_int"
                                    : "int");
    text_append_shortest(out, d->low);
    text_printf(out, ", ");
    text_append_shortest(out, d->high);
    if (d->step != (d->kind == DIM_INT)) {
      text_printf(out, ", step=");
      text_append_shortest(out, d->step);
    }
    text_printf(out, ")");
  }
  if (d->parent < 0) return;
  const Dim *parent = &space->dim[d->parent];
  text_printf(out, " if %s", parent->name);
  char sign = '=';
  for (int i = 0; i < parent->choice_count; i++)
    if (d->parent_choices >> i & 1) {
      text_printf(out, "%c", sign);
      append_choice(parent->choice[i], out);
      sign = '|';
    }
}
