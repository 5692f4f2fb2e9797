/* order_rule: see order_rule.h. */
#include "plan/order_rule.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  OrderKind kind;
  bool is_file, has_from, has_epochs;
} kinds[] = {{"balanced", ORDER_BALANCED, false, false, false},
             {"oversampled", ORDER_OVERSAMPLED, false, false, false},
             {"weighted", ORDER_WEIGHTED, true, false, false},
             {"curriculum", ORDER_CURRICULUM, true, true, true},
             {"sorted", ORDER_SORTED, true, false, true}};

static const char *order_skip(const char *at) { return at + strspn(at, " \t"); }

/* `"a file"` or a name, into `what`; NULL: neither. */
static const char *read_what(const char *at, bool is_file, char what[ORDER_WHAT]) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (is_file && *at != '"') return NULL;
  if (is_file) at++;
  size_t length = is_file ? strcspn(at, "\"\n") : strspn(at, letters);
  if (!length || length >= ORDER_WHAT || (is_file && at[length] != '"')) return NULL;
  memcpy(what, at, length);
  what[length] = 0;
  return order_skip(at + length + is_file);
}

/* `, from=0.2` or `, epochs=5`, each once. */
static const char *order_read_number(const char *at, bool has_from, bool has_epochs,
                                     OrderRule *out) {
  char *end;
  at = order_skip(at + 1);
  bool is_from = has_from && strncmp(at, "from", 4) == 0;
  if (!is_from && !(has_epochs && strncmp(at, "epochs", 6) == 0)) return NULL;
  at = order_skip(at + (is_from ? 4 : 6));
  if (*at != '=') return NULL;
  double value = strtod(at + 1, &end);
  if (end == at + 1 || (is_from ? out->from >= 0 : out->epochs >= 0)) return NULL;
  if (is_from ? !(value > 0 && value <= 1) : !(value >= 1 && value <= 1e9 && value == trunc(value)))
    return NULL;
  if (is_from)
    out->from = value;
  else
    out->epochs = (int64_t)value;
  return order_skip(end);
}

static bool read_rule(const char *text, OrderRule *out) {
  const char *at = order_skip(text);
  size_t length = strcspn(at, "( \t"), which = 0, count = sizeof kinds / sizeof *kinds;
  while (which < count &&
         (strlen(kinds[which].name) != length || memcmp(kinds[which].name, at, length) != 0))
    which++;
  at = order_skip(at + length);
  if (which == count || *at != '(') return false;
  out->kind = kinds[which].kind;
  at = read_what(order_skip(at + 1), kinds[which].is_file, out->what);
  while (at && *at == ',')
    at = order_read_number(at, kinds[which].has_from, kinds[which].has_epochs, out);
  if (!at || *at != ')' || *order_skip(at + 1)) return false;
  if (kinds[which].has_epochs && out->epochs < 0) return false;
  return !kinds[which].has_from || out->from > 0;
}

bool order_rule_read(const char *text, OrderRule *out, Text *why) {
  *out = (OrderRule){.from = -1, .epochs = -1};
  if (!*order_skip(text) || read_rule(text, out)) return true;
  text_printf(why,
              "an order is balanced(label), oversampled(label), weighted(\"weights.npy\"), "
              "curriculum(\"difficulty.npy\", from=0.2, epochs=5) with a share from 0 to 1, or "
              "sorted(\"difficulty.npy\", epochs=1)");
  return false;
}
