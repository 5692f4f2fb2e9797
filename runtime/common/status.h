/* status: how the runtime reports failure. A fallible function returns a Status, outputs come last.
 * STATUS_OK is 0; the other values are the process's exit codes (DESIGN section 9). The sentence
 * for the user lies in a buffer of the calling thread until the next failure there; a worker thread
 * hands its sentence over by copying status_message(). The library never exits and never prints. */
#ifndef FT_RUNTIME_STATUS_H
#define FT_RUNTIME_STATUS_H

typedef enum {
  STATUS_OK = 0,
  STATUS_USER = 1,  /* wrong input, file, setting: the user can mend it */
  STATUS_FAULT = 3, /* the machine failed: no memory, disk full, device lost */
} Status;

#define STATUS_CHECKED __attribute__((warn_unused_result))

/* Sets this thread's message (one line, no newline) and returns `kind`:
 *   return status_fail(STATUS_USER, "%s: not an IDX file", path); */
Status status_fail(Status kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For errno (or TEXT_IRREGULAR) of a failed file operation: ENOSPC, EDQUOT, EIO, ENOMEM are faults
 * of the machine, the rest (no such file, permission) the user's. Message: "<what>: <reason>". */
Status status_errno(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "<context>: " before the message of a failure; returns `status` unchanged. */
Status status_prefix(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The message of this thread's last failure; never NULL. */
const char *status_message(void);

#define STATUS_TRY(expression)                                                                     \
  do {                                                                                             \
    Status status_try_ = (expression);                                                             \
    if (status_try_ != STATUS_OK) return status_try_;                                              \
  } while (0)
#endif
