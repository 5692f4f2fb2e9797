/* op: see op.h. */
#include "ir/op.h"
#include <string.h>

#define T(TRAIT) TRAIT_##TRAIT
#define A(ID) ((AttrSet)1 << ATTR_##ID)
const OpInfo op_info[OP_COUNT] = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, ...)                             \
  [OP_##ID] = {text, min, max, CLASS_##class, STAGE_##first, STAGE_##last, traits, attrs},
#include "ir/ops.def"
#undef OP
};
#undef T
#undef A
_Static_assert(ATTR_COUNT <= 8 * sizeof(AttrSet), "an attribute set has a bit for each");
_Static_assert((int)OP_CONST == (int)LEAF_OPS, "leaves in memory come first in ops.def");

const struct AttrInfo attr_info[ATTR_COUNT] = {
#define ATTR(ID, text, kind) [ATTR_##ID] = {text, ATTR_KIND_##kind},
#include "ir/attrs.def"
#undef ATTR
};

const char *const stage_text[STAGE_NOWHERE + 1] = {"forward", "backward",  "step",    "laid_out",
                                                   "fused",   "scheduled", "planned", "nowhere"};

bool op_parse(const char *text, Op *out) {
  for (int i = 0; i < OP_COUNT; i++)
    if (!strcmp(op_info[i].text, text)) {
      *out = (Op)i;
      return true;
    }
  return false;
}
