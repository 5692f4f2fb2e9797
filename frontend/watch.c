/* watch: see watch.h. */
#include "frontend/watch.h"
#include <string.h>

enum { WATCH_TICKS = 1024 };

void watch_init(Watch *watch, Arena *arena) {
  *watch = (Watch){.arena = arena, .places = {.arena = arena}};
}

/* A dimension is bound at the place of the argument that it is of, where another name stands: so both. */
typedef struct {
  Loc loc;
  uint64_t name;
} WatchKey;

static WatchKey watch_key(Loc loc, const char *name) {
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
  return (WatchKey){loc, hash};
}

const Mention *watch_at(const Watch *watch, Loc loc, const char *name) {
  WatchKey key = watch_key(loc, name);
  int at = lookup_find(&watch->places, &key, sizeof key);
  bool is_it = at >= 0 && strcmp(watch->mentions.at[at].name, name) == 0;
  return is_it ? &watch->mentions.at[at] : NULL;
}

static bool is_same_for_people(const Value *a, const Value *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == VALUE_TENSOR) return type_equal(&a->node->type, &b->node->type);
  if (a->kind == VALUE_LAYER || a->kind == VALUE_INIT || a->kind == VALUE_RANKING) return true;
  return value_equal(a, b);
}

void watch_mention(Builder *b, const char *name, const Variable *variable, Loc loc) {
  Watch *watch = b->watch;
  if (!watch || b->is_again || !loc.file) return;
  if (loc.file >= b->std_first && loc.file <= b->std_last && b->std_first) return;
  WatchKey key = watch_key(loc, name);
  int count = watch->mentions.count, at = lookup_add(&watch->places, &key, sizeof key, count);
  if (at < count) {
    Mention *known = &watch->mentions.at[at];
    if (known->value.kind == VALUE_ERROR) known->value = variable->value;
    known->differs |= !is_same_for_people(&known->value, &variable->value);
    return;
  }
  Mention mention = {loc, name, variable->value, variable->loc, variable->is_dimension, false};
  VEC_PUSH(watch->arena, watch->mentions, mention);
}

bool watch_ends(Builder *b) {
  Watch *watch = b->watch;
  if (!watch) return false;
  if (!watch->has_ended && watch->goes_on && ++watch->ticks % WATCH_TICKS == 0)
    watch->has_ended = !watch->goes_on(watch->user);
  return watch->has_ended;
}
