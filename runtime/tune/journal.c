/* journal: see journal.h. What its lines say is journal_read.c. */
#define _GNU_SOURCE
#include "runtime/tune/journal_private.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRIAL_BYTE ((off_t)1 << 40)
enum { READ_AT_A_TIME = 1 << 20, MOST_LINE = 1 << 20 };

static int set_lock(int fd, int command, short type, off_t at) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  int code;
  while ((code = fcntl(fd, command, &lock)) < 0 && errno == EINTR) {
  }
  if (code < 0) return -1;
  return command == F_GETLK ? lock.l_type != F_UNLCK : 0;
}

static Status append_own_line(Journal *journal, Text *line) {
  char last = '\n';
  off_t end = lseek(journal->fd, 0, SEEK_END);
  if (end > 0 && pread(journal->fd, &last, 1, end - 1) != 1) last = '\n';
  text_append(line, "\n", 1);
  Text whole = {0}; /* a line without an end, as its writer was killed, gets one */
  text_printf(&whole, "%s%s", last == '\n' ? "" : "\n", text_cstr(line));
  int error = text_write_all(journal->fd, text_cstr(&whole), whole.count);
  text_free(&whole);
  return error ? status_errno(error, "%s", journal->path) : STATUS_OK;
}

Status journal_refresh(Journal *journal) {
  char *bytes = malloc(READ_AT_A_TIME);
  if (!bytes) return status_fail(STATUS_FAULT, "out of memory");
  Status status = STATUS_OK;
  ssize_t got;
  while (!status && (got = pread(journal->fd, bytes, READ_AT_A_TIME, journal->read)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status = status_errno(errno, "%s", journal->path);
      break;
    }
    journal->read += got;
    for (char *at = bytes, *end = bytes + got; !status && at < end;) {
      char *newline = memchr(at, '\n', (size_t)(end - at));
      size_t count = (size_t)((newline ? newline : end) - at);
      if (journal->rest.count + count <= MOST_LINE + 1) text_append(&journal->rest, at, count);
      at += count + 1;
      if (!newline) break;
      if (journal->rest.count > MOST_LINE)
        journal->skipped++;
      else if (journal->rest.count)
        status = journal_take_line(journal, text_cstr(&journal->rest), journal->rest.count);
      text_free(&journal->rest);
      journal->rest = (Text){0};
    }
  }
  free(bytes);
  return status;
}

Status journal_lock(Journal *journal) {
  if (set_lock(journal->fd, F_SETLKW, F_WRLCK, 0) < 0)
    return status_errno(
        errno,
        "%s: cannot be locked (a study of several processes needs a file system with POSIX locks)",
        journal->path);
  Status status = journal_refresh(journal);
  if (status) journal_unlock(journal);
  return status;
}

void journal_unlock(Journal *journal) { set_lock(journal->fd, F_SETLK, F_UNLCK, 0); }

static void write_study(const JournalHeader *header, Text *line) {
  text_printf(line, "{\"study\": 1, \"goal\": ");
  text_append_json(line, header->goal);
  text_printf(line, ", \"space\": [");
  for (int i = 0; i < header->space->count; i++) {
    Text dim = {0};
    dim_describe(header->space, i, &dim);
    text_printf(line, i ? ", " : "");
    text_append_json(line, text_cstr(&dim));
    text_free(&dim);
  }
  for (int i = 0; i < header->space->where_count; i++) {
    text_printf(line, i ? ", " : "], \"where\": [");
    text_append_json(line, header->space->where[i].text);
  }
  text_printf(line, "], \"seed\": %llu}", (unsigned long long)header->seed);
}

static Status begin_study(Journal *journal, const JournalHeader *header) {
  STATUS_TRY(journal_lock(journal));
  Status status = STATUS_OK;
  if (!journal->has_header && journal->read > 0)
    status = status_fail(STATUS_USER,
                         "%s: this is not the journal of a study; choose another --study folder",
                         journal->path);
  if (!status && !journal->has_header) {
    Text line = {0};
    write_study(header, &line);
    status = append_own_line(journal, &line);
    text_free(&line);
    if (!status) status = journal_refresh(journal);
  }
  journal_unlock(journal);
  if (status) return status;
  return journal_compare(journal, header);
}

Status journal_open(const char *path, const JournalHeader *header, Journal *out) {
  *out = (Journal){
      .fd = open(path, (header ? O_RDWR | O_CREAT | O_APPEND : O_RDONLY) | O_CLOEXEC, 0666)};
  if (out->fd < 0) return status_errno(errno, "%s", path);
  struct stat about;
  if (fstat(out->fd, &about) < 0 || !S_ISREG(about.st_mode)) {
    journal_close(out);
    return status_fail(STATUS_USER, "%s: not a file", path);
  }
  out->path = strdup(path);
  Status status = out->path ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
  if (!status) status = header ? begin_study(out, header) : journal_refresh(out);
  if (!status && !out->has_header)
    status = status_fail(STATUS_USER, "%s: this is not the journal of a study", path);
  if (status) journal_close(out);
  return status;
}

void journal_close(Journal *journal) {
  if (journal->fd >= 0) close(journal->fd);
  for (int i = 0; i < journal->count; i++) free(journal->trial[i].report);
  free(journal->trial);
  free(journal->path);
  text_free(&journal->rest);
  space_free(&journal->space);
  *journal = (Journal){.fd = -1};
}

static double journal_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

Status journal_start(Journal *journal, int number, const double *point, const char *sampler) {
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  if (set_lock(journal->fd, F_SETLK, F_WRLCK, TRIAL_BYTE + number) < 0)
    return status_errno(errno, "%s: trial %d cannot be locked", journal->path, number);
  Text line = {0}, value = {0};
  text_printf(&line, "{\"trial\": %d, \"start\": {", number);
  for (int i = 0, any = 0; i < journal->space.count; i++) {
    if (isnan(point[i])) continue;
    text_printf(&line, any++ ? ", " : "");
    text_append_json(&line, journal->space.dim[i].name);
    text_printf(&line, ": ");
    dim_print(&journal->space.dim[i], point[i], &value);
    text_append_json(&line, text_cstr(&value));
    text_free(&value);
    value = (Text){0};
  }
  text_printf(&line, "}, \"sampler\": ");
  text_append_json(&line, sampler);
  text_printf(&value, "%s:%d", host, (int)getpid());
  text_printf(&line, ", \"by\": ");
  text_append_json(&line, text_cstr(&value));
  if (*journal->source) text_printf(&line, ", \"source\": \"%s\"", journal->source);
  text_printf(&line, ", \"time\": %.3f}", journal_clock());
  Status status = append_own_line(journal, &line);
  text_free(&line);
  text_free(&value);
  if (!status) status = journal_refresh(journal);
  if (!status && number >= journal->count) /* or this process would begin it for ever */
    status = status_fail(STATUS_FAULT, "%s: trial %d has been written there and cannot be read again", journal->path, number);
  return status;
}

/* A line that needs no decision, so that the lock is held for the write only. */
static Status append_locked(Journal *journal, Text *line) {
  Status status = journal_lock(journal);
  if (!status) {
    status = append_own_line(journal, line);
    if (!status) status = journal_refresh(journal);
    journal_unlock(journal);
  }
  text_free(line);
  return status;
}

static void append_trial_value(Text *line, double value) {
  if (isfinite(value))
    text_printf(line, "%.17g", value);
  else
    text_printf(line, "null");
}

Status journal_report(Journal *journal, int number, double step, double value) {
  Text line = {0};
  text_printf(&line, "{\"trial\": %d, \"step\": %.17g, \"value\": ", number, step);
  append_trial_value(&line, value);
  text_printf(&line, "}");
  return append_locked(journal, &line);
}

Status journal_end(Journal *journal, int number, TrialState state, double step,
                   const double *values, double seconds, const char *why) {
  Text line = {0};
  text_printf(&line, "{\"trial\": %d, \"end\": \"%s\", \"step\": %.17g, \"value\": ", number,
              journal_state_name(state), step);
  append_trial_value(&line, values[0]);
  for (int g = 0; journal->goals.count > 1 && g < journal->goals.count; g++) {
    text_printf(&line, g ? ", " : ", \"values\": [");
    append_trial_value(&line, values[g]);
  }
  text_printf(&line, journal->goals.count > 1 ? "], \"seconds\": %.3f" : ", \"seconds\": %.3f", seconds);
  if (why && *why) {
    text_printf(&line, ", \"why\": ");
    text_append_json(&line, why);
  }
  text_printf(&line, "}");
  Status status = append_locked(journal, &line);
  set_lock(journal->fd, F_SETLK, F_UNLCK, TRIAL_BYTE + number);
  return status;
}

int journal_find_lost(const Journal *journal, const bool *is_own) {
  for (int i = 0; i < journal->count; i++)
    if (journal->trial[i].state == TRIAL_RUNNING && !is_own[i] &&
        set_lock(journal->fd, F_GETLK, F_WRLCK, TRIAL_BYTE + i) == 0)
      return i;
  return -1;
}
