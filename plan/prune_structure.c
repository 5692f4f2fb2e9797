/* prune_structure: see prune_structure.h. */
#include "plan/prune_structure.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_TOGETHER = 1 << 20 };
const char prune_structure_usage[] =
    "element, channel, head, layer, \"2:4\" (of each 4 inputs 2 are kept) or a block of rows and columns such as \"4x8\"";

/* Digits, moving `at` behind them; 0 if there are none or too many. */
static int64_t structure_count(const char **at) {
  if (**at < '1' || **at > '9') return 0;
  char *end;
  long value = strtol(*at, &end, 10);
  *at = end;
  return value <= MOST_TOGETHER ? value : 0;
}

bool prune_structure_read(const char *text, PruneStructure *out) {
  if (strcmp(text, "element") == 0) return *out = (PruneStructure){.kind = PRUNE_ELEMENT}, true;
  if (strcmp(text, "channel") == 0) return *out = (PruneStructure){.kind = PRUNE_CHANNEL}, true;
  if (strcmp(text, "head") == 0) return *out = (PruneStructure){.kind = PRUNE_HEAD}, true;
  if (strcmp(text, "layer") == 0) return *out = (PruneStructure){.kind = PRUNE_LAYER}, true;
  int64_t first = structure_count(&text);
  char mark = *text;
  if (!first || (mark != ':' && mark != 'x')) return false;
  text++;
  int64_t second = structure_count(&text);
  if (!second || *text) return false;
  if (mark == ':' && (first > second || second > PRUNE_MOST_M)) return false;
  *out = (PruneStructure){mark == ':' ? PRUNE_N_OF_M : PRUNE_BLOCK, first, second};
  return true;
}
