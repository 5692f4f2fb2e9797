/* ftrun_tune_block: see ftrun_tune_block.h. */
#define _GNU_SOURCE
#include "tools/ftrun_tune_block.h"
#include "plan/plan.h"
#include <stdlib.h>
#include <string.h>

/* "\ntune, …" begins it; lines are "  --flag value". */
Status block_read(const char *printed, TuneBlock *block) {
  static const char *const flags[] = {"--space",        "--goal", "--sampler", "--trials",
                                      "--parallel",     "--seed", "--prune",   "--prune-from",
                                      "--prune-factor", "--where", NULL};
  const char *at = strstr(printed, "\n\ntune, ");
  if (at) at = strchr(at + 2, '\n');
  while (at && !strncmp(++at, "  --", 4) && block->count < BLOCK_MOST) {
    size_t length = strcspn(at + 2, " \n"), rest = strcspn(at, "\n");
    const char *flag = NULL;
    for (int i = 0; flags[i]; i++)
      if (strlen(flags[i]) == length && !memcmp(flags[i], at + 2, length)) flag = flags[i];
    if (!flag || rest <= length + 3)
      return status_fail(STATUS_USER, "ftc prints a tune block that this ftrun does not know: "
                                      "both must be of one version");
    char *value = strndup(at + length + 3, rest - length - 3);
    if (!value) return status_fail(STATUS_FAULT, "out of memory");
    block->line[block->count++] = (BlockLine){flag, value};
    at = strchr(at, '\n');
  }
  return STATUS_OK;
}

void block_free(TuneBlock *block) {
  for (int i = 0; i < block->count; i++) free(block->line[i].value);
  block->count = 0;
}

/* The name in front of the first =, as a whole one if it is a setting's. */
static void name_of_space(const char *space, char out[160]) {
  char name[SPACE_NAME], key[160];
  space += strspn(space, " \t");
  size_t length = strcspn(space, "= \t");
  snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1),
           space);
  snprintf(out, 160, "%s", setting_find_short(name, key, sizeof key) >= 0 ? key : name);
}

static bool is_same_space(const char *a, const char *b) {
  char of_a[160], of_b[160];
  name_of_space(a, of_a);
  name_of_space(b, of_b);
  return !strcmp(of_a, of_b);
}

Status block_space(const TuneBlock *block, const char *const *spaces, int count, Space *space) {
  for (int i = 0; i < block->count; i++) {
    const char *text = block->line[i].value;
    if (strcmp(block->line[i].flag, "--space") != 0) continue;
    for (int k = count - 1; k >= 0; k--)
      if (is_same_space(text, spaces[k])) text = spaces[k];
    STATUS_TRY(space_add(space, text));
  }
  for (int k = 0; k < count; k++) {
    bool is_placed = false;
    for (int i = 0; i < block->count; i++)
      is_placed |=
          !strcmp(block->line[i].flag, "--space") && is_same_space(block->line[i].value, spaces[k]);
    for (int j = 0; is_placed && j < k; j++)
      if (is_same_space(spaces[j], spaces[k]))
        return status_fail(STATUS_USER, "--space %s: the name is given twice", spaces[k]);
    if (!is_placed) STATUS_TRY(space_add(space, spaces[k]));
  }
  return STATUS_OK;
}

static Status add_once(Space *space, const char *text) {
  STATUS_TRY(space_add_where(space, text));
  for (int i = 0; i < space->where_count - 1; i++)
    if (!strcmp(space->where[i].text, space->where[space->where_count - 1].text)) {
      space->where_count--;
      break;
    }
  return STATUS_OK;
}

Status block_where(const TuneBlock *block, const char *const *wheres, int count, Space *space) {
  for (int i = 0; i < block->count; i++)
    if (!strcmp(block->line[i].flag, "--where")) STATUS_TRY(add_once(space, block->line[i].value));
  for (int i = 0; i < count; i++) STATUS_TRY(add_once(space, wheres[i]));
  return STATUS_OK;
}
