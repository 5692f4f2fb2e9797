/* grow_rule: see grow_rule.h. */
#include "plan/grow_rule.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char grow_key[] = "train.grow";
const char grow_usage[] = "truncate(T, 64, 128), resize(S, 16, 20) or batch(16, 32), with up to 7 sizes from the smallest";

static const char *const grow_kinds[] = {"", "truncate", "resize", "batch"};
const char *grow_kind_text(GrowKind kind) { return grow_kinds[kind]; }

static const char *grow_skip(const char *at) { return at + strspn(at, " \t"); }

/* The kind and the opening parenthesis; NULL: neither. */
static const char *read_grow_kind(const char *at, GrowRule *out) {
  size_t length = strcspn(at, "( \t");
  for (int i = GROW_TRUNCATE; i <= GROW_BATCH; i++)
    if (strlen(grow_kinds[i]) == length && !memcmp(grow_kinds[i], at, length)) out->kind = (GrowKind)i;
  at = grow_skip(at + length);
  return out->kind && *at == '(' ? grow_skip(at + 1) : NULL;
}

static const char *read_grow_name(const char *at, GrowRule *out) {
  size_t length = 0;
  while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
  if (!length || length >= GROW_NAME || isdigit((unsigned char)*at)) return NULL;
  memcpy(out->name, at, length);
  at = grow_skip(at + length);
  return *at == ',' ? grow_skip(at + 1) : NULL;
}

bool grow_read(const char *text, GrowRule *out) {
  *out = (GrowRule){0};
  const char *at = grow_skip(text);
  if (!*at) return true;
  at = read_grow_kind(at, out);
  if (at && out->kind != GROW_BATCH) at = read_grow_name(at, out);
  while (at) {
    char *end;
    long long size = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : 0;
    bool rises = size > (out->count ? out->size[out->count - 1] : 0) && size < INT32_MAX;
    if (!rises || out->count == PLAN_MOST_SIZES - 1) return false;
    out->size[out->count++] = size;
    at = grow_skip(end);
    if (*at == ')') return !*grow_skip(at + 1);
    at = *at == ',' ? grow_skip(at + 1) : NULL;
  }
  return false;
}

GrowRule grow_of(const SettingValue *settings) {
  GrowRule rule;
  return grow_read(setting_text(settings, grow_key), &rule) ? rule : (GrowRule){0};
}

/* The first step behind those of the size. */
static int64_t grow_bound(const GrowRule *rule, const SettingValue *settings, int64_t total, int index) {
  double every = setting_number(settings, "train.grow.every");
  double share = setting_number(settings, "train.grow.share");
  double bound = every > 0 ? every * (index + 1) : (double)total * share * (index + 1) / rule->count;
  return bound < 9e15 ? (int64_t)floor(bound + 0.5) : (int64_t)9e15;
}

int64_t grow_size(const GrowRule *rule, const SettingValue *settings, int64_t total_steps, int64_t step,
                  int64_t *until) {
  for (int i = 0; i < rule->count; i++) {
    int64_t bound = grow_bound(rule, settings, total_steps, i);
    if (step >= bound) continue;
    *until = bound;
    return rule->size[i];
  }
  return 0;
}

void grow_append_size(const SettingValue *settings, int64_t size, Text *out) {
  static const char *const of[] = {"rows", "rows", "images", "batches"}; /* by kind; buckets are rows */
  text_printf(out, "%s of %lld", of[grow_of(settings).kind], (long long)size);
}
