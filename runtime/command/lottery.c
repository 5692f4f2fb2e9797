/* lottery: see lottery.h. */
#include "runtime/command/lottery.h"
#include "base/arena.h"
#include "plan/plan.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/command/prune_weights.h"
#include "runtime/common/element.h"
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char mask_mark[] = OWN_MARK "prune.mask.", sum_key[] = "checksum";

/* A parameter, of which elements are chosen. */
typedef struct {
  const SafeTensor *end;
  int64_t elements, alive; /* at the end of the training before */
  float *score;            /* 0: it is not alive */
  bool *keep;
} Drawn;

typedef struct {
  const LotteryRule *rule;
  Arena *arena;
  Safetensors *early, *end;
  VEC(Drawn) drawn;
} Lottery;

/* ── choosing ───────────────────────────────────────────────────────────────────────────────── */
static bool is_drawn(const LotteryRule *rule, const SafeTensor *tensor) {
  bool is_meant = !rule->on_count;
  for (int i = 0; i < rule->on_count; i++) is_meant |= fnmatch(rule->on[i], tensor->name, 0) == 0;
  return is_meant && tensor->shape.rank >= 2 && shape_elements(&tensor->shape) > 0 && element_converts(tensor->element, DT_F32) &&
         strncmp(tensor->name, OWN_MARK, strlen(OWN_MARK)) != 0;
}

static Status list_drawn(Lottery *l, const char *early_path, const char *end_path) {
  for (int i = 0; i < l->end->tensor_count; i++) {
    const SafeTensor *tensor = &l->end->tensor[i], *before = safetensors_find(l->early, tensor->name);
    if (!is_drawn(l->rule, tensor)) continue;
    if (!before || !shape_equal(&before->shape, &tensor->shape))
      return status_fail(STATUS_USER, "%s and %s are not of one model: '%s' is not the same in both", early_path, end_path, tensor->name);
    if (!safetensors_find(l->early, arena_printf(l->arena, "%s%s", mask_mark, tensor->name)))
      return status_fail(STATUS_USER, "%s has no mask of '%s': it must come from a training with prune = zeros", early_path, tensor->name);
    Drawn one = {.end = tensor, .elements = shape_elements(&tensor->shape)};
    one.score = ARENA_ARRAY(l->arena, float, one.elements);
    one.keep = ARENA_ARRAY(l->arena, bool, one.elements);
    element_convert(tensor->data, tensor->element, false, one.elements, DT_F32, one.score);
    for (int64_t k = 0; k < one.elements; k++) {
      one.score[k] = fabsf(one.score[k]);
      one.alive += one.score[k] != 0;
    }
    VEC_PUSH(l->arena, l->drawn, one);
  }
  return l->drawn.count ? STATUS_OK : status_fail(STATUS_USER, "%s has no parameter to prune%s", end_path, l->rule->on_count ? " whose name is one of --on" : "");
}

static int64_t left_of(const LotteryRule *rule, int64_t alive) { return alive - (int64_t)floor(rule->share * (double)alive + 0.5); }

static Status choose_by_layer(Lottery *l) {
  for (int i = 0; i < l->drawn.count; i++) {
    Drawn *one = &l->drawn.at[i];
    STATUS_TRY(prune_weights_best(one->score, one->elements, left_of(l->rule, one->alive), one->keep));
  }
  return STATUS_OK;
}

static Status choose_of_all(Lottery *l) {
  int64_t all = 0, alive = 0, at = 0;
  for (int i = 0; i < l->drawn.count; i++) all += l->drawn.at[i].elements, alive += l->drawn.at[i].alive;
  float *score = ARENA_ARRAY(l->arena, float, all);
  bool *keep = ARENA_ARRAY(l->arena, bool, all);
  for (int i = 0; i < l->drawn.count; at += l->drawn.at[i++].elements)
    memcpy(score + at, l->drawn.at[i].score, (size_t)l->drawn.at[i].elements * sizeof *score);
  STATUS_TRY(prune_weights_best(score, all, left_of(l->rule, alive), keep));
  at = 0;
  for (int i = 0; i < l->drawn.count; at += l->drawn.at[i++].elements)
    memcpy(l->drawn.at[i].keep, keep + at, (size_t)l->drawn.at[i].elements);
  return STATUS_OK;
}

/* Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators (2014). */
static uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* As many as there are, at other places. */
static Status choose_any(Lottery *l) {
  for (int i = 0; i < l->drawn.count; i++) {
    Drawn *one = &l->drawn.at[i];
    int64_t left = 0;
    for (int64_t k = 0; k < one->elements; k++) left += one->keep[k];
    for (int64_t k = 0; k < one->elements; k++)
      one->score[k] = (float)(mixed(mixed(l->rule->seed + (uint64_t)i) + 0x9e3779b97f4a7c15u * (uint64_t)(k + 1)) >> 40);
    STATUS_TRY(prune_weights_best(one->score, one->elements, left, one->keep));
  }
  return STATUS_OK;
}

/* ── the checkpoint ─────────────────────────────────────────────────────────────────────────── */
static const Drawn *find_drawn(const Lottery *l, const char *name) {
  for (int i = 0; i < l->drawn.count; i++)
    if (strcmp(l->drawn.at[i].end->name, name) == 0) return &l->drawn.at[i];
  return NULL;
}

/* Of a parameter, or of what an optimizer keeps for it: "@adam.m.fc1.weight". */
static const Drawn *drawn_of(const Lottery *l, const SafeTensor *tensor) {
  const char *name = tensor->name;
  bool is_own = strncmp(name, OWN_MARK, strlen(OWN_MARK)) == 0;
  const Drawn *found = find_drawn(l, name);
  for (const char *dot = is_own ? strchr(name, '.') : NULL; dot && !found; dot = strchr(dot + 1, '.')) found = find_drawn(l, dot + 1);
  return found && shape_equal(&found->end->shape, &tensor->shape) ? found : NULL;
}

static void change_tensor(const Lottery *l, SafeTensor *tensor) {
  bool is_mask = strncmp(tensor->name, mask_mark, sizeof mask_mark - 1) == 0;
  const Drawn *drawn = drawn_of(l, tensor);
  if (!drawn && !is_mask) return;
  uint8_t *data = memcpy(arena_alloc(l->arena, tensor->bytes + 1), tensor->data, tensor->bytes);
  int bytes = element_bytes(tensor->element);
  static const float one = 1;
  for (int64_t i = 0; i < shape_elements(&tensor->shape); i++) {
    bool is_kept = !drawn || drawn->keep[i];
    if (!is_kept) memset(data + i * bytes, 0, (size_t)bytes);
    if (is_kept && is_mask) memcpy(data + i * bytes, &one, sizeof one);
  }
  tensor->data = data;
}

static Status write_ticket(const Lottery *l, const char *output) {
  SafeTensor *tensors = ARENA_ARRAY(l->arena, SafeTensor, l->early->tensor_count);
  SafeText *texts = ARENA_ARRAY(l->arena, SafeText, l->early->text_count);
  int text_count = 0;
  for (int i = 0; i < l->early->text_count; i++)
    if (strcmp(l->early->text[i].key, sum_key) != 0) texts[text_count++] = l->early->text[i];
  for (int i = 0; i < l->early->tensor_count; i++) {
    tensors[i] = l->early->tensor[i];
    change_tensor(l, &tensors[i]);
  }
  return safetensors_write(output, tensors, l->early->tensor_count, texts, text_count, true);
}

static Status draw(Lottery *l, const char *early, const char *end, const char *output, LotteryCount *count) {
  STATUS_TRY(safetensors_open(early, &l->early));
  STATUS_TRY(safetensors_open(end, &l->end));
  if (!safetensors_sum_agrees(l->early)) return status_fail(STATUS_USER, "%s is no whole checkpoint", early);
  STATUS_TRY(list_drawn(l, early, end));
  STATUS_TRY(l->rule->is_by_layer ? choose_by_layer(l) : choose_of_all(l));
  if (l->rule->is_random) STATUS_TRY(choose_any(l));
  int64_t alive = 0;
  for (int i = 0; i < l->drawn.count; i++) {
    count->weights += l->drawn.at[i].elements;
    alive += l->drawn.at[i].alive;
    for (int64_t k = 0; k < l->drawn.at[i].elements; k++) count->left += l->drawn.at[i].keep[k];
  }
  if (count->left == alive || !count->left)
    return status_fail(STATUS_USER, "--share %g of the %lld weights that are left is %s of them", l->rule->share, (long long)alive, count->left ? "none" : "all");
  return write_ticket(l, output);
}

Status lottery_ticket(const char *early, const char *end, const LotteryRule *rule, const char *output, LotteryCount *count) {
  Lottery lottery = {.rule = rule, .arena = arena_new()};
  *count = (LotteryCount){0};
  Status status = draw(&lottery, early, end, output, count);
  safetensors_close(lottery.early);
  safetensors_close(lottery.end);
  arena_free(lottery.arena);
  return status;
}

Status lottery_can_draw(const char *early, const LotteryRule *rule) {
  Lottery lottery = {.rule = rule, .arena = arena_new()};
  Status status = safetensors_open(early, &lottery.early);
  lottery.end = lottery.early;
  if (status == STATUS_OK) status = list_drawn(&lottery, early, early);
  safetensors_close(lottery.early);
  arena_free(lottery.arena);
  return status;
}
