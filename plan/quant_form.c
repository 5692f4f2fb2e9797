/* quant_form: see quant_form.h. */
#include "plan/quant_form.h"
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BITS = 16, MOST_GROUP = 1 << 30 };

/* A letter and a number behind it, at most `most`; 0: it is not there, or the number is none of these. */
static int64_t take_form_number(const char **at, char letter, int64_t most) {
  char *end = NULL;
  if (**at != letter) return 0;
  int64_t number = isdigit((unsigned char)(*at)[1]) ? strtoll(*at + 1, &end, 10) : 0;
  *at = end ? end : *at + 1;
  return number > 0 && number <= most ? number : 0;
}

static bool take_form_letter(const char **at, char letter) {
  if (**at != letter) return false;
  (*at)++;
  return true;
}

static bool bits_are_fine(int bits) { return bits >= 2 && bits <= MOST_BITS; }

const char *quant_form_read(const char *text, QuantForm *out) {
  const char *at = text;
  *out = (QuantForm){0};
  if (*at != 'w') return "a form begins with w and the bits of the weights, w8";
  out->bits = (int)take_form_number(&at, 'w', MOST_BITS);
  out->per_tensor = take_form_letter(&at, 't');
  bool has_group = *at == 'g';
  out->group = take_form_number(&at, 'g', MOST_GROUP);
  bool has_inputs = *at == 'a';
  out->input_bits = (int)take_form_number(&at, 'a', MOST_BITS);
  out->is_unsigned = has_inputs && take_form_letter(&at, 'u');
  out->is_dynamic = has_inputs && !out->is_unsigned && take_form_letter(&at, 'd');
  out->has_factor = take_form_letter(&at, 'f');
  if (!bits_are_fine(out->bits) || (has_inputs && !bits_are_fine(out->input_bits))) return "a rounded number has 2 to 16 bits";
  if (has_group && !out->group) return "a group has a number of input features, g32";
  if (has_group && out->per_tensor) return "t, one scale for all weights, and groups do not go together";
  if (*at) return "a form is w8 or w4, then t or g32, then a8, a8u or a8d, then f";
  return NULL;
}

static const char *last_word(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

bool quant_form_names(const char *pattern, const char *name) {
  return strcmp(last_word(pattern), last_word(name)) == 0 && fnmatch(pattern, name, 0) == 0;
}

void quant_form_append(const QuantForm *form, Text *out) {
  text_printf(out, "w%d%s", form->bits, form->per_tensor ? "t" : "");
  if (form->group) text_printf(out, "g%lld", (long long)form->group);
  if (form->input_bits) text_printf(out, "a%d%s", form->input_bits, form->is_unsigned ? "u" : form->is_dynamic ? "d" : "");
  if (form->has_factor) text_append(out, "f", 1);
}
