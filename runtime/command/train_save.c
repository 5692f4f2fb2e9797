/* train_save: the files that a training leaves: whether they can be written is tried before the
 * first step, and what cannot be written after the last one goes elsewhere rather than be lost.
 * Declared in train_state.h. */
#define _GNU_SOURCE /* O_NOFOLLOW; O_TMPFILE */
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

/* Can a file be made here? One without a name where the file system has such, so that a run that is
 * killed just now leaves nothing. Returns 0, or an errno value. */
static int can_write_in(const char *folder) {
  Text path = {0};
  int nameless = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (nameless >= 0) return close(nameless), 0;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) return errno;
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

/* Do all ranks see what rank 0 makes in this folder? */
static Status try_together(Training *training, const char *folder) {
  Ranks *ranks = &training->ranks;
  Text name = {0}, path = {0};
  int fd = -1, error = 0;
  text_printf(&path, "%s/.ft-try", folder);
  if (training->writes) error = text_open_beside(path.at, &name, &fd);
  if (training->writes && error) text_free(&name);
  char *shared = name.at;
  Status status = error ? status_errno(error, "cannot write in %s", folder) : STATUS_OK;
  Status told = ranks_share_text(ranks, &shared);
  if (status == STATUS_OK && told == STATUS_OK && shared && access(shared, F_OK) != 0)
    status = status_fail(STATUS_USER, "the folder %s is not where rank 0 has it", folder);
  if (told == STATUS_OK) told = comm_agree(ranks->comm, status);
  if (fd >= 0) close(fd);
  if (training->writes && shared) unlink(shared);
  free(shared);
  text_free(&path);
  return told;
}

/* The folders that files go to, of what the run is asked for. */
static Status try_all_together(Training *training) {
  const TrainOptions *options = training->options;
  const char *folder = train_text(training, "train.checkpoint.dir");
  const char *files[] = {options->save, options->save_ema};
  if (folder[0]) STATUS_TRY(try_together(training, folder));
  for (int i = 0; i < 2; i++) {
    Text of = {0};
    if (!files[i]) continue;
    append_folder(&of, files[i]);
    Status status = try_together(training, of.at);
    text_free(&of);
    STATUS_TRY(status);
  }
  return STATUS_OK;
}

static Status choose_writers(Training *training) {
  Ranks *ranks = &training->ranks;
  Status status = ranks->comm ? try_all_together(training) : STATUS_OK;
  training->together = status == STATUS_OK ? ranks->comm : NULL;
  if (status == STATUS_OK || comm_status(ranks->comm) != STATUS_OK) return status;
  if (!plan_is_apart(training->plan)) {
    log_say(training->log, "%s: rank 0 writes all files alone", status_message());
    return STATUS_OK;
  }
  Text why = {0};
  text_printf(&why, "%s", status_message());
  status_fail(status,
              "%s: each rank has a part of the parameters (distributed.zero, distributed.tensor) "
              "and writes it into one file, so train.checkpoint.dir, --save and --save-ema must "
              "name folders of a disk that all machines share, by the same path",
              why.at);
  text_free(&why);
  return ranks_failed_alike(ranks, status);
}

Status train_choose_writers(Training *training) {
  bool saves = train_text(training, "train.checkpoint.dir")[0];
  if (training->options->dry_run) return STATUS_OK;
  STATUS_TRY(choose_writers(training));
  if (!saves || (!training->together && !training->writes)) return STATUS_OK;
  STATUS_TRY(ckpt_writer_new(training->exec, training->together, &training->writer));
  ckpt_writer_note(training->writer, trace_spans(training->trace));
  return STATUS_OK;
}

/* ── after the last step ──────────────────────────────────────────────────────────────────── */

typedef enum { SAVE_WEIGHTS, SAVE_AVERAGES, SAVE_CHECKPOINT } What;
static const char *const what_text[] = {"the weights", "the averaged weights", "a checkpoint"};

static Status write_to(Training *training, What what, const char *path, int64_t done) {
  static const CommDoing saving = {.what = "writing its last files", .may_last = true};
  Comm *comm = training->together;
  CkptInfo info = train_checkpoint_info(training, done);
  if (!comm && !training->writes) return STATUS_OK;
  comm_doing(training->ranks.comm, &saving);
  return train_written(training,
                       what == SAVE_WEIGHTS    ? ckpt_save_weights(training->exec, comm, path)
                       : what == SAVE_AVERAGES ? ckpt_save_ema(training->exec, comm, path)
                                               : ckpt_save(training->exec, comm, path, &info));
}

/* Rank 0's choice of a file that is not there yet; NULL: it is. */
static Status choose_file(Training *training, const char *folder, const char *name, char **out) {
  const char *dot = strstr(name, ".safetensors");
  Text there = {0};
  text_printf(&there, "%s/%.*s.kept-%d.safetensors", folder,
              dot ? (int)(dot - name) : (int)strlen(name), name, (int)getpid());
  *out = there.at;
  if (training->writes && access(there.at, F_OK) == 0) {
    text_free(&there);
    *out = NULL;
  }
  return training->together ? ranks_share_text(&training->ranks, out) : STATUS_OK;
}

/* Adds to the message of a failure where the numbers are now. Returns its status. */
static Status put_elsewhere(Training *training, What what, const char *path, int64_t done,
                            Status status) {
  const char *slash = strrchr(path, '/'), *temporary = getenv("TMPDIR");
  const char *folders[] = {".", temporary && temporary[0] ? temporary : "/tmp"};
  Text reason = {0};
  char *there = NULL;
  bool is_there = false;
  text_printf(&reason, "%s", status_message());
  for (int i = 0; i < 2 && !is_there; i++) {
    free(there);
    is_there = choose_file(training, folders[i], slash ? slash + 1 : path, &there) == STATUS_OK &&
               there && write_to(training, what, there, done) == STATUS_OK;
  }
  if (is_there)
    status_fail(status, "%s; %s of step %lld: %s", reason.at, what_text[what], (long long)done,
                there);
  else
    status_fail(status, "%s; nor could %s be written to %s or %s", reason.at, what_text[what],
                folders[0], folders[1]);
  text_free(&reason);
  free(there);
  return train_written(training, status);
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
  if (!training->writes && !training->together) return STATUS_OK;
  bool is_asked_for = options->stops && options->stop_at == done && training->saved_step < 0; /* before the first step, too */
  if (done > training->first_step || is_asked_for) {
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

/* Of ranks that have not failed alike each is where it is: rank 0 writes what it has, if that is
 * all. */
Status train_put_aside(Training *training, int64_t done, Status status) {
  const char *folder = train_text(training, "train.checkpoint.dir"),
             *save = training->options->save;
  if (!training->ranks.is_agreed) training->together = NULL;
  if (plan_is_apart(training->plan) && !training->together) return status;
  if ((!training->writes && !training->together) || training->finite.is_diverged ||
      training->is_torn || done <= training->first_step || done == training->saved_step ||
      (!folder[0] && !save))
    return status;
  return put_elsewhere(training, SAVE_CHECKPOINT, save ? save : folder, done, status);
}
