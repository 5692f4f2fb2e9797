/* role: see role.h. */
#include "base/role.h"
#include <string.h>

static const struct {
  const char *text;
  int traits;
} info[ROLES_END] = {
#define X(ID, text, traits) {text, traits},
    ROLES(X)
#undef X
};

const char *role_text(LeafRole role) { return info[role].text; }

bool role_has(LeafRole role, RoleTrait trait) { return (info[role].traits & (int)trait) != 0; }

bool role_parse(const char *text, LeafRole *out) {
  for (int i = ROLE_NONE + 1; i < ROLES_END; i++)
    if (!strcmp(info[i].text, text)) {
      *out = (LeafRole)i;
      return true;
    }
  return false;
}
