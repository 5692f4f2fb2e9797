/* watch_http: `ftrun watch --http RUN…`: the page of a report that follows its logs, on a port of this machine.
 * It can be read only: GET and HEAD of four fixed paths. What asks under another name than this
 * machine's own is refused, so that no page of elsewhere reads it through a name that leads here. */
#ifndef FT_RUNTIME_WATCH_HTTP_H
#define FT_RUNTIME_WATCH_HTTP_H
#include "runtime/command/report.h"
#include "runtime/common/status.h"

typedef struct {
  const char *const *run;
  int run_count;
  const char *address; /* NULL: 127.0.0.1 */
  int port;            /* 0: the first free one from WATCH_PORT on */
  ReportParts parts;
} WatchHttpOptions;
enum { WATCH_PORT = 8011, WATCH_PORTS = 20 };

/* Until a signal ends it. */
STATUS_CHECKED Status watch_http(const WatchHttpOptions *options);
#endif
