/* watch_http: see watch_http.h. The data are made anew when someone asks and the logs have grown. */
#include "runtime/command/watch_http.h"
#include "runtime/command/http_serve.h"
#include "runtime/command/report_data.h"
#include "runtime/command/run_file.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct {
  RunFile *file[REPORT_MOST_RUNS];
  int count;
  Text parts, data; /* what does not change, and all */
  int64_t version, made, started;
} WatchPage;

static void make_data(WatchPage *page) {
  RunLog *logs[REPORT_MOST_RUNS];
  if (page->made == page->version) return;
  for (int i = 0; i < page->count; i++) logs[i] = run_file_log(page->file[i]);
  page->data.count = 0;
  text_append(&page->data, page->parts.at, page->parts.count);
  report_append_runs(&page->data, logs, page->count);
  text_append(&page->data, "}", 1);
  page->made = page->version;
}

static void answer_path(void *user, const char *path, const char *known, HttpAnswer *out) {
  WatchPage *page = user;
  const ReportFile *file;
  for (int i = 0; (file = report_file(i)); i++) {
    if (strcmp(path, file->name) != 0) continue;
    *out = (HttpAnswer){200, file->type, file->bytes, file->count, ""};
    return;
  }
  if (strcmp(path, "/data.json") != 0) return;
  snprintf(out->tag, sizeof out->tag, "\"%lld-%lld\"", (long long)page->started,
           (long long)page->version);
  out->status = strcmp(known, out->tag) ? 200 : 304;
  if (out->status == 304) return;
  make_data(page);
  out->type = "application/json";
  out->bytes = page->data.at;
  out->count = page->data.count;
}

/* *more: there is more to read at once. */
static Status read_files(WatchPage *page, bool *more) {
  *more = false;
  for (int i = 0; i < page->count; i++) {
    bool has_more, has_changed;
    STATUS_TRY(run_file_read(page->file[i], NULL, NULL, &has_more, &has_changed));
    *more |= has_more;
    page->version += has_changed;
  }
  return STATUS_OK;
}

static Status open_port(const WatchHttpOptions *options, HttpServer **server) {
  const char *address = options->address ? options->address : "127.0.0.1";
  Status status = STATUS_OK;
  if (options->port) return http_open(address, options->port, server);
  for (int i = 0; i < WATCH_PORTS; i++) {
    status = http_open(address, WATCH_PORT + i, server);
    if (status == STATUS_OK) return status;
  }
  return status_prefix(status, "--http=PORT names another one");
}

static Status serve(const WatchHttpOptions *options, WatchPage *page) {
  HttpServer *server;
  bool more = true;
  STATUS_TRY(open_port(options, &server));
  const char *address = options->address ? options->address : "127.0.0.1";
  bool is_six = strchr(address, ':') != NULL;
  printf("http://%s%s%s:%d/ shows %d run%s until Ctrl-C\n", is_six ? "[" : "", address,
         is_six ? "]" : "", http_port(server), page->count, page->count == 1 ? "" : "s");
  fflush(stdout);
  Status status = STATUS_OK;
  while (status == STATUS_OK) {
    status = read_files(page, &more);
    if (status == STATUS_OK) status = http_turn(server, more ? 0 : 100, answer_path, page);
  }
  http_close(server);
  return status;
}

Status watch_http(const WatchHttpOptions *options) {
  WatchPage page = {.started = (int64_t)time(NULL), .made = -1};
  Status status = report_append_parts(&page.parts, &options->parts, true);
  for (int i = 0; i < options->run_count && status == STATUS_OK; i++) {
    status = run_file_new(options->run[i], &page.file[page.count]);
    page.count += status == STATUS_OK;
  }
  if (status == STATUS_OK) status = serve(options, &page);
  for (int i = 0; i < page.count; i++) run_file_free(page.file[i]);
  text_free(&page.parts);
  text_free(&page.data);
  return status;
}
