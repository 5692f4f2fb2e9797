/* status: see status.h. One message buffer per thread, so that workers can fail independently. */
#include "runtime/common/status.h"
#include "base/text.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

const char *status_message(void) { return message; }

Status status_fail(Status kind, const char *format, ...) {
  char fresh[sizeof message]; /* the arguments may point into the old message */
  va_list args;
  va_start(args, format);
  vsnprintf(fresh, sizeof fresh, format, args);
  va_end(args);
  text_make_printable(fresh);
  memcpy(message, fresh, sizeof message);
  return kind;
}

Status status_errno(int error, const char *format, ...) {
  char what[sizeof message];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  Status kind = text_is_fault(error) ? STATUS_FAULT : STATUS_USER;
  return status_fail(kind, "%s: %s", what, text_error(error));
}

Status status_prefix(Status status, const char *format, ...) {
  if (status == STATUS_OK) return status;
  char context[sizeof message];
  va_list args;
  va_start(args, format);
  vsnprintf(context, sizeof context, format, args);
  va_end(args);
  return status_fail(status, "%s: %s", context, message);
}
