/* train_setup: opening an artifact with the user's settings (declared in train.h). */
#include "runtime/train.h"
#include <stdlib.h>
#include <string.h>

Status train_set(Plan *plan, const char *assignment) {
  const char *equals = strchr(assignment, '=');
  if (!equals || equals == assignment)
    return status_fail(STATUS_USER, "--set %s: expected key=value, for example train.lr=3e-4",
                       assignment);
  char *key = strndup(assignment, (size_t)(equals - assignment));
  int index = setting_find(key);
  Status status = STATUS_OK;
  const char *why = NULL;
  if (index < 0) {
    const char *nearest = setting_nearest(key);
    status = status_fail(STATUS_USER, "--set %s: there is no setting '%s'%s%s%s", assignment, key,
                         nearest ? "; did you mean '" : "", nearest ? nearest : "",
                         nearest ? "'?" : "");
  } else if (setting_info[index].when == WHEN_STATIC) {
    status = status_fail(STATUS_USER, "--set %s: %s shapes the compiled code; recompile with "
                                      "ftc --set %s",
                         assignment, setting_info[index].key, assignment);
  } else if (setting_info[index].when == WHEN_DERIVED) {
    status = status_fail(STATUS_USER, "--set %s: %s is computed from the data and train.epochs",
                         assignment, key);
  } else if (!setting_set(plan->arena, plan->settings, index, equals + 1, &why)) {
    status = status_fail(STATUS_USER, "--set %s: %s", assignment, why ? why : "a wrong value");
  }
  free(key);
  return status;
}

Status train_open(const RunOptions *options, Artifact **out) {
  STATUS_TRY(artifact_open(options->artifact, out));
  Status status = STATUS_OK;
  for (int i = 0; i < options->set_count && status == STATUS_OK; i++)
    status = train_set((*out)->plan, options->sets[i]);
  if (status == STATUS_OK) return status;
  artifact_close(*out);
  *out = NULL;
  return status;
}
