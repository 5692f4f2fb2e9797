/* train_given: the weights of frozen layers, which files have (declared in train_state.h). */
#include "runtime/checkpoint/given.h"
#include "runtime/command/train_state.h"

Status train_given(Training *training) {
  Text notes = {0};
  Status status = given_load(training->exec, &training->options->run.places, true, &notes,
                             &training->given);
  if (status == STATUS_OK && notes.count) log_say(training->log, "%s", text_cstr(&notes));
  text_free(&notes);
  return status;
}

Status train_check_given(const Training *training, const CkptInfo *info, const char *used) {
  if (!info->given || !training->given || info->given == training->given) return STATUS_OK;
  Text files = {0};
  given_files(training->exec, &files);
  Status status = status_fail(
      STATUS_USER,
      "%s was trained with other weights of the frozen layers than there are now in %s: it cannot go "
      "on exactly (--init %s starts a new training from its weights)",
      used, text_cstr(&files), used);
  text_free(&files);
  return status;
}
