/* plan_place: see plan_place.h. What is read is checked at once, so a plan whose lines were
 * accepted has only places that the runtime can make, and windows that lie in them. */
#include "plan/plan_text.h"
#include "plan/plan_words.h"
#include <inttypes.h>
#include <string.h>

const char *standard_place_text(StandardPlace id) {
  static const char *const names[] = {
#define X(ID, text) text,
      STANDARD_PLACES(X)
#undef X
  };
  return names[id];
}

bool standard_place_parse(const char *text, StandardPlace *out) {
  for (int i = 0; i < STANDARD_PLACE_COUNT; i++)
    if (!strcmp(standard_place_text((StandardPlace)i), text)) {
      *out = (StandardPlace)i;
      return true;
    }
  return false;
}

void plan_add_standard_places(Plan *plan) {
  static const PlanPlace traits[STANDARD_PLACE_COUNT] = {
      [PLACE_PARAMS] = {.elements = ELEMENTS_FLAT, .dtype = DT_F32, .saved = SAVED_WEIGHTS},
      [PLACE_FROZEN] = {.elements = ELEMENTS_FLAT,
                        .dtype = DT_F32,
                        .saved = SAVED_WEIGHTS,
                        .is_frozen = true},
      [PLACE_NARROW] = {.elements = ELEMENTS_ROUNDED,
                        .dtype = DT_BF16,
                        .of_elements = PLACE_PARAMS},
      [PLACE_FROZEN_NARROW] = {.elements = ELEMENTS_ROUNDED,
                               .dtype = DT_BF16,
                               .of_elements = PLACE_FROZEN,
                               .is_frozen = true},
      [PLACE_GIVEN] = {.is_frozen = true},
      [PLACE_GRADS] = {.life = FOR_STEP,
                       .elements = ELEMENTS_LIKE,
                       .dtype = DT_F32,
                       .of_elements = PLACE_PARAMS},
      [PLACE_STATE] = {.saved = SAVED_CHECKPOINT},
      [PLACE_SETTINGS] = {.host = HOST_FROM},
      [PLACE_INPUT] = {.life = FOR_BATCH, .host = HOST_FROM},
      [PLACE_OUTPUT] = {.life = FOR_BATCH, .host = HOST_TO},
      [PLACE_WORK] = {.life = FOR_BATCH},
      [PLACE_WORKSPACE] = {.life = FOR_BATCH},
      [PLACE_PREPARED] = {.life = FOR_WEIGHTS}};
  for (int i = 0; i < STANDARD_PLACE_COUNT; i++) {
    PlanPlace place = traits[i];
    place.name = standard_place_text((StandardPlace)i);
    plan_add_place(plan, place);
  }
}

int plan_add_place(Plan *plan, PlanPlace place) {
  VEC_PUSH(plan->arena, plan->places, place);
  return plan->places.count - 1;
}

void plan_add_slice(Plan *plan, PlanTensor *state) {
  PlanPlace window = {.name = state->name,
                      .bytes = plan_aligned(type_bytes(&state->type)),
                      .elements = ELEMENTS_LIKE,
                      .dtype = state->type.dtype,
                      .of_elements = PLACE_PARAMS,
                      .saved = SAVED_CHECKPOINT,
                      .is_window = true,
                      .of = PLACE_STATE,
                      .offset = state->offset};
  state->place = plan_add_place(plan, window);
  state->offset = 0;
}

int plan_find_place(const Plan *plan, const char *name) {
  for (int i = 0; i < plan->places.count; i++)
    if (!strcmp(plan->places.at[i].name, name)) return i;
  return -1;
}

int plan_whole_place(const Plan *plan, int place, int64_t *offset) {
  const PlanPlace *found = &plan->places.at[place];
  if (!found->is_window) return place;
  *offset += found->offset;
  return found->of;
}

static int find_of_batch(const Plan *plan, PlaceHost host) {
  for (int i = 0; i < plan->places.count; i++)
    if (plan->places.at[i].host == host && plan->places.at[i].life == FOR_BATCH) return i;
  return -1;
}
int plan_batch_place(const Plan *plan) { return find_of_batch(plan, HOST_FROM); }
int plan_result_place(const Plan *plan) { return find_of_batch(plan, HOST_TO); }

bool plan_is_temporary(const Plan *plan, const PlanBuffer *buffer) {
  const PlanPlace *place = &plan->places.at[buffer->place];
  int64_t end = buffer->offset + type_bytes(&buffer->type);
  if (place->life != FOR_BATCH || place->host) return false;
  for (int i = 0; i < plan->places.count; i++) {
    const PlanPlace *window = &plan->places.at[i];
    if (window->is_window && window->of == buffer->place && window->life != FOR_BATCH &&
        buffer->offset < window->offset + window->bytes && window->offset < end)
      return false;
  }
  return true;
}

int64_t plan_place_bytes(const Plan *plan, int place) {
  return place < 0 ? 0 : plan->places.at[place].bytes;
}

int64_t plan_shared(const Plan *plan) { return plan->params.count ? plan->params.at[0].shared : 0; }

bool plan_is_apart(const Plan *plan) {
  return plan_has_parts(plan) || setting_pipeline(plan->settings) > 1;
}

bool plan_has_parts(const Plan *plan) {
  bool is = plan_shared(plan) > 0;
  for (int i = 0; i < plan->params.count && !is; i++) is = plan->params.at[i].cut.ranks > 0;
  return is;
}

int64_t plan_memory(const Plan *plan) {
  int64_t total = 0;
  for (int i = 0; i < plan->places.count; i++)
    if (!plan->places.at[i].is_window) total += plan->places.at[i].bytes;
  return total;
}

/* ── text ─────────────────────────────────────────────────────────────────────────────────── */
static const char *const life_text[] = {
#define X(ID, text) text,
    PLACE_LIVES(X)
#undef X
};
static const char *const host_text[] = {
#define X(ID, text) text,
    PLACE_HOSTS(X)
#undef X
};
static const char *const saved_text[] = {
#define X(ID, text) text,
    PLACE_SAVES(X)
#undef X
};

const char *place_life_text(PlaceLife life) { return life_text[life]; }

void plan_print_places(const Plan *plan, Text *out) {
  for (int i = 0; i < plan->places.count; i++) {
    const PlanPlace *place = &plan->places.at[i];
    text_printf(out, "place %s %" PRId64 " for %s", place->name, place->bytes,
                life_text[place->life]);
    if (place->host) text_printf(out, " %s host", host_text[place->host]);
    if (place->elements) text_printf(out, " elements %s", dtype_text(place->dtype));
    if (place->elements > ELEMENTS_FLAT)
      text_printf(out, " %s %s", place->elements == ELEMENTS_LIKE ? "like" : "rounded",
                  plan->places.at[place->of_elements].name);
    if (place->saved) text_printf(out, " saved %s", saved_text[place->saved]);
    if (place->is_frozen) text_printf(out, " frozen");
    if (place->is_window)
      text_printf(out, " of %s+%" PRId64, plan->places.at[place->of].name, place->offset);
    text_printf(out, "\n");
  }
}

/* The index of the word that comes next in `texts`, from `first` on; -1: none of them does. */
static int take_one_of(Words *words, const char *const *texts, int first, int count) {
  for (int i = first; i < count; i++)
    if (words_take(words, texts[i])) return i;
  return -1;
}

int plan_read_place_name(Words *words, const Plan *plan) {
  const char *name = words_word(words, "a place");
  int found = name ? plan_find_place(plan, name) : -1;
  if (name && found < 0) words_fail(words, "there is no place '%s' before this", name);
  return found;
}

static bool read_elements(Words *words, const Plan *plan, PlanPlace *out) {
  if (!words_take(words, "elements")) return true;
  const char *text = words_word(words, "the type of elements");
  if (!text) return false;
  if (!dtype_parse_named(text, &out->dtype)) return words_fail(words, "there is no type '%s'", text);
  out->elements = ELEMENTS_FLAT;
  if (words_take(words, "like"))
    out->elements = ELEMENTS_LIKE;
  else if (words_take(words, "rounded"))
    out->elements = ELEMENTS_ROUNDED;
  else
    return true;
  return (out->of_elements = plan_read_place_name(words, plan)) >= 0;
}

static bool read_window(Words *words, const Plan *plan, PlanPlace *out) {
  if (!words_take(words, "of")) return true;
  out->is_window = true;
  return (out->of = plan_read_place_name(words, plan)) >= 0 && words_expect(words, "+") &&
         words_integer(words, "the offset", 0, LARGEST_PLACE, &out->offset);
}

/* ── checks ───────────────────────────────────────────────────────────────────────────────── */
static bool check_window(Words *words, const Plan *plan, const PlanPlace *place) {
  if (!place->is_window) return true;
  const PlanPlace *of = &plan->places.at[place->of];
  if (of->is_window)
    return words_fail(words, "place %s is a window of a window, %s", place->name, of->name);
  if (of->host || place->host)
    return words_fail(words, "place %s is a window of what the host fills or reads", place->name);
  if (place->offset % PLAN_ALIGN)
    return words_fail(words, "offset %" PRId64 " is not a multiple of %d", place->offset,
                      PLAN_ALIGN);
  if (place->bytes <= of->bytes && place->offset <= of->bytes - place->bytes)
    return place->saved == SAVED_NONE || place->saved == of->saved ||
           words_fail(words, "place %s is saved in another way than %s", place->name, of->name);
  return words_fail(words, "place %s lies outside of %s, which has %" PRId64 " bytes", place->name,
                    of->name, of->bytes);
}

/* As many as the place has whose order they have, or fewer, up to a place's alignment. */
static bool plan_place_check_elements(Words *words, const Plan *plan, const PlanPlace *place) {
  if (place->elements <= ELEMENTS_FLAT) return true;
  const PlanPlace *of = &plan->places.at[place->of_elements];
  if (of->elements != ELEMENTS_FLAT || of->is_window)
    return words_fail(words, "the elements of place %s have no order of their own", of->name);
  int64_t bytes = of->bytes / dtype_bytes(of->dtype) * dtype_bytes(place->dtype);
  if (place->bytes > plan_aligned(bytes))
    return words_fail(words, "place %s has more elements than %s", place->name, of->name);
  if (place->elements != ELEMENTS_ROUNDED) return true;
  if (of->dtype != DT_F32 || (place->dtype != DT_BF16 && place->dtype != DT_F16))
    return words_fail(words, "place %s is rounded, but not from f32 to bf16 or f16", place->name);
  if (place->is_window || place->life != FOR_EVER || place->saved)
    return words_fail(words, "place %s is rounded: it is no window, for ever, and not saved",
                      place->name);
  return place->bytes == 0 || place->bytes >= of->bytes / 2 ||
         words_fail(words, "place %s is smaller than %s in 16 bits", place->name, of->name);
}

static bool check_traits(Words *words, const Plan *plan, const PlanPlace *place) {
  if (place->host && (place->elements || place->saved))
    return words_fail(words, "place %s is the host's: it is not saved and has no order",
                      place->name);
  if (place->host == HOST_TO && place->life != FOR_BATCH)
    return words_fail(words, "place %s is read by the host, but not for each batch", place->name);
  if (place->host == HOST_FROM && place->life != FOR_BATCH && place->life != FOR_EVER)
    return words_fail(words, "place %s is filled by the host neither once nor for each batch",
                      place->name);
  if (place->host && place->life == FOR_BATCH && find_of_batch(plan, place->host) >= 0)
    return words_fail(words, "a second place that the host %s for each batch",
                      place->host == HOST_TO ? "reads" : "fills");
  bool is_rounded = place->elements == ELEMENTS_ROUNDED;
  if (is_rounded && place->is_frozen != plan->places.at[place->of_elements].is_frozen)
    return words_fail(words, "one of place %s and what is rounded there is frozen, one is not",
                      place->name);
  bool is_given = place->elements == ELEMENTS_NONE && !place->saved && place->life == FOR_EVER &&
                  !place->host && !place->is_window;
  if (place->is_frozen && !is_rounded && !is_given && place->saved != SAVED_WEIGHTS)
    return words_fail(words, "place %s is frozen, and holds no weights", place->name);
  if (place->life == FOR_WEIGHTS && (place->host || place->elements || place->is_window))
    return words_fail(words, "place %s is made of weights: it is no window, not the host's, and has "
                             "no order",
                      place->name);
  if (place->saved && place->life != FOR_EVER)
    return words_fail(words, "place %s is saved, but not kept for ever", place->name);
  return true;
}

bool plan_read_place(Words *words, Plan *plan) {
  PlanPlace place = {.name = words_word(words, "the place's name")};
  int which;
  if (!place.name) return false;
  if (plan_find_place(plan, place.name) >= 0)
    return words_fail(words, "a second line for place %s", place.name);
  if (plan->places.count == PLAN_MOST_PLACES)
    return words_fail(words, "a plan has at most %d places", PLAN_MOST_PLACES);
  if (!words_integer(words, "the place's size", 0, LARGEST_PLACE, &place.bytes) ||
      !words_expect(words, "for"))
    return false;
  if ((which = take_one_of(words, life_text, 0, PLACE_LIFE_COUNT)) < 0)
    return words_fail(words, "how long place %s is kept is not said", place.name);
  place.life = (PlaceLife)which;
  if ((which = take_one_of(words, host_text, 1, PLACE_HOST_COUNT)) > 0) {
    place.host = (PlaceHost)which;
    if (!words_expect(words, "host")) return false;
  }
  if (!read_elements(words, plan, &place)) return false;
  if (words_take(words, "saved")) {
    if ((which = take_one_of(words, saved_text, 1, PLACE_SAVED_COUNT)) < 0)
      return words_fail(words, "with what place %s is saved is not said", place.name);
    place.saved = (PlaceSaved)which;
  }
  place.is_frozen = words_take(words, "frozen");
  if (!read_window(words, plan, &place) || !check_traits(words, plan, &place) ||
      !check_window(words, plan, &place) || !plan_place_check_elements(words, plan, &place))
    return false;
  plan_add_place(plan, place);
  return true;
}
