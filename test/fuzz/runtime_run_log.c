/* Any bytes as a log of JSON lines, in pieces: the same is read of it whatever the pieces, and the
 * page's data is JSON in which no HTML parser sees anything. */
#include "runtime/command/report_data.h"
#include <stdlib.h>
#include <string.h>

static Text read_in_pieces(const uint8_t *data, size_t size, size_t piece) {
  RunLog *log;
  Text out = {0};
  if (run_log_new("x", &log) != STATUS_OK) abort();
  for (size_t at = 0; at < size; at += piece) {
    size_t count = size - at < piece ? size - at : piece;
    char *exact = malloc(count); /* so that the sanitizer sees a read beyond the end */
    memcpy(exact, data + at, count);
    if (run_log_feed(log, exact, count, NULL, NULL) != STATUS_OK) abort();
    free(exact);
  }
  report_append_runs(&out, &log, 1);
  run_log_free(log);
  return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Text whole = read_in_pieces(data, size, size + 1), pieces = read_in_pieces(data, size, 7);
  if (whole.count != pieces.count || memcmp(whole.at, pieces.at, whole.count)) abort();
  if (strpbrk(whole.at, "<>&'")) abort();
  json_t *json = json_loadb(whole.at, whole.count, 0, NULL);
  if (!json) abort();
  json_decref(json);
  text_free(&whole);
  text_free(&pieces);
  return 0;
}
