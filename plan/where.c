/* where: see where.h. The texts are of strangers: depth, length and steps are bounded. */
#include "plan/where.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
  WHERE_NUMBER,
  WHERE_DIM,
  WHERE_IS, /* the dimension is word number `number` */
  WHERE_ADD,
  WHERE_SUBTRACT,
  WHERE_MULTIPLY,
  WHERE_DIVIDE,
  WHERE_POWER,
  WHERE_NEGATE,
  WHERE_MIN,
  WHERE_MAX,
  WHERE_LESS,
  WHERE_LESS_EQUAL,
  WHERE_MORE,
  WHERE_MORE_EQUAL,
  WHERE_EQUAL,
  WHERE_UNEQUAL,
  WHERE_AND,
  WHERE_OR,
  WHERE_NOT
} WhereWhat;

/* What a part of the text is. */
typedef enum { IS_NUMBER, IS_TRUTH, IS_DIM_OF_WORDS, IS_WORD } WhereType;

typedef struct {
  WhereType type;
  int dim;
  const char *at, *word; /* where it begins; a word, or a number that stands alone */
  size_t length;
} Operand;

typedef struct {
  const char *text, *at;
  const WhereNames *names;
  Where *out;
  WhereError *error;
  int depth;
  bool any_dim;
} WhereReader;

__attribute__((format(printf, 3, 4))) static bool where_fail(WhereReader *r, const char *at,
                                                             const char *format, ...) {
  va_list list;
  va_start(list, format);
  r->error->at = (int)(at - r->text);
  vsnprintf(r->error->why, sizeof r->error->why, format, list);
  va_end(list);
  return false;
}

static bool emit_step(WhereReader *r, WhereWhat what, int dim, double number) {
  if (r->out->count == WHERE_STEPS)
    return where_fail(r, r->at, "the condition is too long: at most %d names, numbers and signs",
                      WHERE_STEPS);
  r->out->step[r->out->count++] = (WhereStep){(int)what, dim, number};
  return true;
}

static void skip_where_blanks(WhereReader *r) {
  while (*r->at == ' ' || *r->at == '\t') r->at++;
}

static bool is_name_letter(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static bool take_mark(WhereReader *r, const char *mark) {
  size_t length = strlen(mark);
  skip_where_blanks(r);
  if (strncmp(r->at, mark, length)) return false;
  if (isalpha((unsigned char)*mark) && is_name_letter(r->at[length])) return false;
  r->at += length;
  return true;
}

static bool read_or(WhereReader *r, Operand *out);
static bool read_sum(WhereReader *r, Operand *out);

static bool no_such_dimension(WhereReader *r, const Operand *o) {
  char name[96], hint[160] = "";
  snprintf(name, sizeof name, "%.*s", (int)(o->length < sizeof name ? o->length : sizeof name - 1),
           o->word);
  r->names->hint(r->names->context, name, hint, sizeof hint);
  return where_fail(r, o->at, "there is no dimension '%s'%s", name, hint);
}

static bool need_number(WhereReader *r, const Operand *o) {
  char words[120];
  if (o->type == IS_NUMBER) return true;
  if (o->type == IS_TRUTH)
    return where_fail(r, o->at, "this is true or false, where a number belongs");
  if (o->type == IS_WORD) return no_such_dimension(r, o);
  return where_fail(
      r, o->at,
      "'%.*s' is no number but one of %s: it can be compared with one of these by == and !=",
      (int)o->length, o->word, r->names->words(r->names->context, o->dim, words, sizeof words));
}

static bool need_truth(WhereReader *r, const Operand *o) {
  if (o->type == IS_TRUTH) return true;
  if (o->type == IS_WORD) return no_such_dimension(r, o);
  return where_fail(r, o->at,
                    "this is no condition: compare it with something, by < <= > >= == or !=");
}

/* Behind the name: (a, b, …). */
static bool read_least_or_most(WhereReader *r, WhereWhat what) {
  for (int count = 0;; count++) {
    Operand one;
    if (!read_sum(r, &one) || !need_number(r, &one)) return false;
    if (count && !emit_step(r, what, 0, 0)) return false;
    if (take_mark(r, ",")) continue;
    if (take_mark(r, ")")) return true;
    return where_fail(r, r->at, "expected , or ) of %s(", what == WHERE_MIN ? "min" : "max");
  }
}

static bool read_where_word(WhereReader *r, Operand *out) {
  char quote = *r->at++;
  size_t length = strcspn(r->at, quote == '"' ? "\"" : "'");
  if (r->at[length] != quote) return where_fail(r, out->at, "the text has no end");
  *out = (Operand){IS_WORD, -1, out->at, r->at, length};
  r->at += length + 1;
  return true;
}

static bool read_where_name(WhereReader *r, Operand *out) {
  const char *name = r->at;
  while (is_name_letter(*r->at)) r->at++;
  *out = (Operand){IS_WORD, -1, name, name, (size_t)(r->at - name)};
  bool is_least = out->length == 3 && !memcmp(name, "min", 3);
  if ((is_least || (out->length == 3 && !memcmp(name, "max", 3))) && take_mark(r, "(")) {
    out->type = IS_NUMBER;
    out->length = 0;
    return read_least_or_most(r, is_least ? WHERE_MIN : WHERE_MAX);
  }
  out->dim = r->names->find(r->names->context, name, out->length);
  if (out->dim < 0) return true; /* a word, if it stands beside a dimension of words */
  char words[8];
  r->any_dim = true;
  out->type = r->names->words(r->names->context, out->dim, words, sizeof words) ? IS_DIM_OF_WORDS
                                                                                : IS_NUMBER;
  return out->type == IS_DIM_OF_WORDS || emit_step(r, WHERE_DIM, out->dim, 0);
}

static bool read_literal(WhereReader *r, Operand *out) {
  char *end;
  double number = strtod(r->at, &end);
  if (end == r->at || !isfinite(number) || is_name_letter(*end))
    return where_fail(r, r->at, "this is no number");
  *out = (Operand){IS_NUMBER, -1, r->at, r->at, (size_t)(end - r->at)};
  r->at = end;
  return emit_step(r, WHERE_NUMBER, 0, number);
}

static bool read_primary(WhereReader *r, Operand *out) {
  skip_where_blanks(r);
  *out = (Operand){IS_NUMBER, -1, r->at, NULL, 0};
  char c = *r->at;
  if (take_mark(r, "(")) {
    const char *at = out->at;
    if (!read_or(r, out)) return false;
    if (out->type == IS_WORD || out->type == IS_DIM_OF_WORDS) return need_number(r, out);
    out->at = at;
    out->length = 0;
    return take_mark(r, ")") ||
           where_fail(r, r->at, "expected ) for the ( at letter %d", (int)(at - r->text) + 1);
  }
  if (c == '"' || c == '\'') return read_where_word(r, out);
  if (isdigit((unsigned char)c) || c == '.') return read_literal(r, out);
  if (isalpha((unsigned char)c) || c == '_') return read_where_name(r, out);
  if (!c) return where_fail(r, r->at, "the condition ends where a name or a number belongs");
  return where_fail(r, r->at, "expected a name or a number");
}

/* Each level of the text takes a level here, so that it cannot be as deep as it is long. */
static bool go_down(WhereReader *r) {
  return ++r->depth <= WHERE_DEPTH ||
         where_fail(r, r->at, "more than %d levels of ( ), signs and not", WHERE_DEPTH);
}

/* -a, a ** b: ** is done first, and from the right. */
static bool read_signed(WhereReader *r, Operand *out) {
  Operand power;
  skip_where_blanks(r);
  const char *at = r->at;
  if (!go_down(r)) return false;
  bool fine = true;
  if (take_mark(r, "-")) {
    fine = read_signed(r, out) && need_number(r, out) && emit_step(r, WHERE_NEGATE, 0, 0);
    *out = (Operand){IS_NUMBER, -1, at, at, (size_t)(r->at - at)}; /* -1 may be a word's value */
  } else {
    fine = read_primary(r, out);
    if (fine && take_mark(r, "**")) {
      fine = need_number(r, out) && read_signed(r, &power) && need_number(r, &power) &&
             emit_step(r, WHERE_POWER, 0, 0);
      out->length = 0;
    }
  }
  r->depth--;
  return fine;
}

static bool read_product(WhereReader *r, Operand *out) {
  Operand right;
  if (!read_signed(r, out)) return false;
  for (;;) {
    bool times = take_mark(r, "*");
    if (!times && !take_mark(r, "/")) return true;
    if (!need_number(r, out) || !read_signed(r, &right) || !need_number(r, &right) ||
        !emit_step(r, times ? WHERE_MULTIPLY : WHERE_DIVIDE, 0, 0))
      return false;
    out->length = 0;
  }
}

static bool read_sum(WhereReader *r, Operand *out) {
  Operand right;
  if (!read_product(r, out)) return false;
  for (;;) {
    bool plus = take_mark(r, "+");
    if (!plus && !take_mark(r, "-")) return true;
    if (!need_number(r, out) || !read_product(r, &right) || !need_number(r, &right) ||
        !emit_step(r, plus ? WHERE_ADD : WHERE_SUBTRACT, 0, 0))
      return false;
    out->length = 0;
  }
}

/* A dimension of words with one of them. */
static bool compare_words(WhereReader *r, const Operand *dim, const Operand *word, WhereWhat what) {
  char words[120];
  const WhereNames *names = r->names;
  int length = (int)word->length;
  names->words(names->context, dim->dim, words, sizeof words);
  if (what != WHERE_EQUAL && what != WHERE_UNEQUAL)
    return where_fail(r, dim->at,
                      "'%.*s' is one of %s, which have no order: only == and != compare them",
                      (int)dim->length, dim->word, words);
  if (word->type == IS_DIM_OF_WORDS || word->type == IS_TRUTH || !word->length)
    return where_fail(r, word->at, "'%.*s' is compared with one of its values: %s",
                      (int)dim->length, dim->word, words);
  int which = names->word(names->context, dim->dim, word->word, word->length);
  if (which < 0)
    return where_fail(r, word->at, "'%.*s' is no value of '%.*s'; there are: %s", length,
                      word->word, (int)dim->length, dim->word, words);
  return emit_step(r, WHERE_IS, dim->dim, which) &&
         (what == WHERE_EQUAL || emit_step(r, WHERE_NOT, 0, 0));
}

static bool take_comparison(WhereReader *r, WhereWhat *what) {
  static const struct {
    const char *mark;
    WhereWhat what;
  } signs[] = {{"<=", WHERE_LESS_EQUAL}, {"<", WHERE_LESS},   {">=", WHERE_MORE_EQUAL},
               {">", WHERE_MORE},        {"==", WHERE_EQUAL}, {"!=", WHERE_UNEQUAL}};
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
    if (take_mark(r, signs[i].mark)) return *what = signs[i].what, true;
  return false;
}

static bool read_comparison(WhereReader *r, Operand *out) {
  Operand right;
  WhereWhat what, other;
  int first = r->out->count;
  if (!read_sum(r, out)) return false;
  int before = r->out->count;
  if (!take_comparison(r, &what)) return true;
  if (!read_sum(r, &right)) return false;
  skip_where_blanks(r);
  const char *behind = r->at;
  if (take_comparison(r, &other))
    return where_fail(r, behind, "two comparisons in a row: write a <= x and x <= b");
  bool is_left = out->type == IS_DIM_OF_WORDS;
  if (is_left || right.type == IS_DIM_OF_WORDS) {
    /* a number on the other side is a word here, and its step goes */
    if ((is_left ? right.type : out->type) == IS_NUMBER) r->out->count = is_left ? before : first;
    if (!compare_words(r, is_left ? out : &right, is_left ? &right : out, what)) return false;
  } else if (!need_number(r, out) || !need_number(r, &right) || !emit_step(r, what, 0, 0)) {
    return false;
  }
  out->type = IS_TRUTH;
  out->length = 0;
  return true;
}

static bool read_not(WhereReader *r, Operand *out) {
  skip_where_blanks(r);
  const char *at = r->at;
  if (!take_mark(r, "not")) return read_comparison(r, out);
  bool fine = go_down(r) && read_not(r, out) && need_truth(r, out) && emit_step(r, WHERE_NOT, 0, 0);
  r->depth--;
  out->at = at;
  return fine;
}

static bool read_and(WhereReader *r, Operand *out) {
  Operand right;
  if (!read_not(r, out)) return false;
  while (take_mark(r, "and"))
    if (!need_truth(r, out) || !read_not(r, &right) || !need_truth(r, &right) ||
        !emit_step(r, WHERE_AND, 0, 0))
      return false;
  return true;
}

static bool read_or(WhereReader *r, Operand *out) {
  Operand right;
  if (!go_down(r) || !read_and(r, out)) return false;
  while (take_mark(r, "or"))
    if (!need_truth(r, out) || !read_and(r, &right) || !need_truth(r, &right) ||
        !emit_step(r, WHERE_OR, 0, 0))
      return false;
  r->depth--;
  return true;
}

static bool refuse_rest(WhereReader *r) {
  static const struct {
    const char *mark, *instead;
  } others[] = {{"&&", "and"}, {"||", "or"}, {"!", "not"}, {"=", "=="},
                {"&", "and"},  {"|", "or"},  {"^", "**"}};
  skip_where_blanks(r);
  if (!*r->at) return true;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!strncmp(r->at, others[i].mark, strlen(others[i].mark)))
      return where_fail(r, r->at, "there is no %s here: write %s", others[i].mark,
                        others[i].instead);
  if (*r->at == ')') return where_fail(r, r->at, "there is no ( for this )");
  if (!isprint((unsigned char)*r->at))
    return where_fail(r, r->at, "a letter that does not belong into a condition");
  return where_fail(r, r->at, "expected and, or, a comparison or the end");
}

/* One blank for several: texts that say the same are mostly the same text then. */
static void keep_condition(Where *out, const char *text) {
  size_t count = 0;
  for (const char *c = text + strspn(text, " \t"); *c; c++) {
    bool is_blank = *c == ' ' || *c == '\t';
    if (is_blank && (c[1] == ' ' || c[1] == '\t' || !c[1])) continue;
    out->text[count++] = is_blank ? ' ' : *c;
  }
  out->text[count] = 0;
}

bool where_read(const char *text, const WhereNames *names, Where *out, WhereError *error) {
  WhereReader r = {.text = text, .at = text, .names = names, .out = out, .error = error};
  Operand whole;
  out->count = 0;
  if (strlen(text) >= WHERE_LETTERS)
    return where_fail(&r, text, "the condition is longer than %d letters", WHERE_LETTERS - 1);
  if (!read_or(&r, &whole) || !refuse_rest(&r) || !need_truth(&r, &whole)) return false;
  if (!r.any_dim) return where_fail(&r, text, "the condition names no dimension");
  keep_condition(out, text);
  return true;
}

static double lower_of(double a, double b) { return isnan(a) || isnan(b) ? NAN : fmin(a, b); }
static double higher_of(double a, double b) { return isnan(a) || isnan(b) ? NAN : fmax(a, b); }

static double of_truth(double a, double b, bool truth) {
  return isnan(a) || isnan(b) ? NAN : truth;
}

/* Truth is 1, 0, or NAN where it is neither. */
static double apply_step(WhereWhat what, double a, double b) {
  switch (what) {
  case WHERE_ADD:
    return a + b;
  case WHERE_SUBTRACT:
    return a - b;
  case WHERE_MULTIPLY:
    return a * b;
  case WHERE_DIVIDE:
    return a / b;
  case WHERE_POWER: /* pow(1, NAN) is 1 */
    return isnan(a) || isnan(b) ? NAN : pow(a, b);
  case WHERE_MIN:
    return lower_of(a, b);
  case WHERE_MAX:
    return higher_of(a, b);
  case WHERE_LESS:
    return of_truth(a, b, a < b);
  case WHERE_LESS_EQUAL:
    return of_truth(a, b, a <= b);
  case WHERE_MORE:
    return of_truth(a, b, a > b);
  case WHERE_MORE_EQUAL:
    return of_truth(a, b, a >= b);
  case WHERE_EQUAL:
    return of_truth(a, b, a == b);
  case WHERE_UNEQUAL:
    return of_truth(a, b, a != b);
  case WHERE_AND:
    return a == 0 || b == 0 ? 0 : a + b == 2 ? 1 : NAN;
  default: /* WHERE_OR */
    return a == 1 || b == 1 ? 1 : a + b == 0 ? 0 : NAN;
  }
}

int where_holds(const Where *where, const double *value) {
  double stack[WHERE_STEPS + 1];
  int top = 0;
  for (int i = 0; i < where->count; i++) {
    const WhereStep *step = &where->step[i];
    WhereWhat what = (WhereWhat)step->what;
    if (what == WHERE_NUMBER) {
      stack[top++] = step->number;
    } else if (what == WHERE_DIM) {
      stack[top++] = value[step->dim];
    } else if (what == WHERE_IS) {
      double is = value[step->dim];
      stack[top++] = of_truth(is, is, is == step->number);
    } else if (what == WHERE_NEGATE) {
      stack[top - 1] = -stack[top - 1];
    } else if (what == WHERE_NOT) {
      stack[top - 1] = 1 - stack[top - 1];
    } else {
      top--;
      stack[top - 1] = apply_step(what, stack[top - 1], stack[top]);
    }
  }
  return isnan(stack[0]) ? -1 : stack[0] != 0;
}
