/* train_save: the files that a training leaves: whether they can be written is tried before the
 * first step, and what cannot be written after the last one goes elsewhere rather than be lost.
 * Declared in train_state.h. */
#define _GNU_SOURCE /* O_NOFOLLOW */
#include "runtime/command/train_state.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ── before the first step ────────────────────────────────────────────────────────────────── */

/* The folder that `path` lies in. */
static void append_folder(Text *out, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash)
    text_printf(out, ".");
  else
    text_append(out, path, slash == path ? 1 : (size_t)(slash - path));
}

/* Can a file be made here? Returns 0, or an errno value. */
static int can_write_in(const char *folder) {
  Text path = {0};
  text_printf(&path, "%s/.ft-try-%d.tmp", folder, (int)getpid());
  int fd = open(path.at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) close(fd);
  if (fd >= 0) unlink(path.at);
  text_free(&path);
  return error;
}

static Status try_file(const char *flag, const char *path) {
  struct stat info;
  if (!path) return STATUS_OK;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return status_fail(STATUS_USER, "%s %s: that is %s, not a file", flag, path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
  Text folder = {0};
  append_folder(&folder, path);
  Status status = STATUS_OK;
  int error = stat(folder.at, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
  if (error == ENOENT)
    status = status_fail(STATUS_USER, "%s %s: there is no folder %s; make it first", flag, path,
                         folder.at);
  else if (error || (error = can_write_in(folder.at)))
    status = status_errno(error, "%s %s: cannot write in %s", flag, path, folder.at);
  text_free(&folder);
  return status;
}

/* A dry run makes no folder: it looks at the nearest one that is there. */
static Status try_checkpoints(const char *folder, bool is_dry) {
  struct stat info;
  Text at = {0};
  text_printf(&at, "%s", folder);
  if (!is_dry) {
    text_free(&at);
    STATUS_TRY(ckpt_make_folder(folder));
    int error = can_write_in(folder);
    return error ? status_errno(error, "train.checkpoint.dir: cannot write in %s", folder)
                 : STATUS_OK;
  }
  while (stat(at.at, &info) != 0 && errno == ENOENT && strcmp(at.at, ".") && strcmp(at.at, "/")) {
    Text up = {0};
    append_folder(&up, at.at);
    text_free(&at);
    at = up;
  }
  int error = stat(at.at, &info) != 0           ? errno
              : !S_ISDIR(info.st_mode)          ? ENOTDIR
              : access(at.at, W_OK | X_OK) != 0 ? errno
                                                : 0;
  Status status =
      error ? status_errno(error, "train.checkpoint.dir: cannot write in %s", at.at) : STATUS_OK;
  text_free(&at);
  return status;
}

Status train_try_outputs(const Training *training) {
  const TrainOptions *options = training->options;
  const char *folder = train_text(training, "train.checkpoint.dir");
  if (options->save && options->save_ema && strcmp(options->save, options->save_ema) == 0)
    return status_fail(STATUS_USER, "--save and --save-ema name the same file: %s", options->save);
  STATUS_TRY(try_file("--save", options->save));
  STATUS_TRY(try_file("--save-ema", options->save_ema));
  STATUS_TRY(try_file("--trace", options->trace));
  return folder[0] ? try_checkpoints(folder, options->dry_run) : STATUS_OK;
}

/* ── after the last step ──────────────────────────────────────────────────────────────────── */

Status train_hold(Training *training, int64_t done) {
  bool is_finite;
  if (!plan_is_apart(training->plan)) return STATUS_OK;
  Status written = train_look_at_writing(training, true); /* its copy is free then */
  if (written != STATUS_OK) log_warn(training->log, "%s", status_message());
  STATUS_TRY(train_check_params(training, done, &is_finite));
  return ckpt_hold(training->exec);
}

typedef enum { SAVE_WEIGHTS, SAVE_AVERAGES, SAVE_CHECKPOINT } What;
static const char *const what_text[] = {"the weights", "the averaged weights", "a checkpoint"};

static Status write_to(Training *training, What what, const char *path, int64_t done) {
  if (what == SAVE_WEIGHTS) return ckpt_save_weights(training->exec, path);
  if (what == SAVE_AVERAGES) return ckpt_save_ema(training->exec, path);
  CkptInfo info = train_checkpoint_info(training, done);
  return ckpt_save(training->exec, path, &info);
}

/* Adds to the message of a failure where the numbers are now. Returns its status. */
static Status put_elsewhere(Training *training, What what, const char *path, int64_t done,
                            Status status) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strstr(name, ".safetensors"), *temporary = getenv("TMPDIR");
  const char *folders[] = {".", temporary && temporary[0] ? temporary : "/tmp"};
  Text reason = {0}, there = {0};
  bool is_there = false;
  text_printf(&reason, "%s", status_message());
  for (int i = 0; i < 2 && !is_there; i++) {
    there.count = 0;
    text_printf(&there, "%s/%.*s.kept-%d.safetensors", folders[i],
                dot ? (int)(dot - name) : (int)strlen(name), name, (int)getpid());
    is_there = access(there.at, F_OK) != 0 && write_to(training, what, there.at, done) == STATUS_OK;
  }
  if (is_there)
    status_fail(status, "%s; %s of step %lld: %s", reason.at, what_text[what], (long long)done,
                there.at);
  else
    status_fail(status, "%s; nor could %s be written to %s or %s", reason.at, what_text[what],
                folders[0], folders[1]);
  text_free(&reason);
  text_free(&there);
  return status;
}

static void note(Text *failures, Status status, Status *worst) {
  if (status == STATUS_OK) return;
  text_printf(failures, "%s%s", failures->count ? "; " : "", status_message());
  if (status > *worst) *worst = status;
}

static Status train_save_file(Training *training, What what, const char *path, int64_t done) {
  if (!path) return STATUS_OK;
  Status status = write_to(training, what, path, done);
  if (status != STATUS_OK) return put_elsewhere(training, what, path, done, status);
  log_say(training->log, "%s%s written to %s", what == SAVE_AVERAGES ? "averaged " : "", "weights",
          path);
  return STATUS_OK;
}

Status train_finish(Training *training, int64_t done) {
  const TrainOptions *options = training->options;
  const char *folder = train_text(training, "train.checkpoint.dir");
  bool is_finite;
  Text failures = {0};
  Status worst = STATUS_OK;
  STATUS_TRY(train_check_params(training, done, &is_finite));
  if (!training->writes) return STATUS_OK;
  if (done > training->first_step) {
    Status status = train_end_writing(training, train_checkpoint(training, done));
    if (status != STATUS_OK && !options->save)
      status = put_elsewhere(training, SAVE_CHECKPOINT, folder, done, status);
    note(&failures, status, &worst);
  }
  note(&failures, train_save_file(training, SAVE_WEIGHTS, options->save, done), &worst);
  note(&failures, train_save_file(training, SAVE_AVERAGES, options->save_ema, done), &worst);
  if (worst != STATUS_OK) worst = status_fail(worst, "%s", failures.at);
  text_free(&failures);
  return worst;
}

Status train_put_aside(Training *training, int64_t done, Status status) {
  const char *folder = train_text(training, "train.checkpoint.dir"),
             *save = training->options->save;
  if (plan_is_apart(training->plan) && !ckpt_is_held(training->exec))
    return status; /* the other ranks have their parts */
  if (!training->writes || training->finite.is_diverged || training->is_torn ||
      done <= training->first_step || done == training->saved_step || (!folder[0] && !save))
    return status;
  return put_elsewhere(training, SAVE_CHECKPOINT, save ? save : folder, done, status);
}
