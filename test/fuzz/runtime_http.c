/* Any bytes as a request: it is an answer's status, and what is kept of it ends within its room. */
#include "runtime/command/http_serve.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const addresses[] = {"127.0.0.1", "0.0.0.0", "::1"};
  char *exact = malloc(size + !size); /* so that the sanitizer sees a read beyond the end */
  memcpy(exact, data, size);
  for (int i = 0; i < 3; i++) {
    HttpRequest request;
    int status = http_read_request(exact, size, addresses[i], &request);
    if (status != 200 && status != 400 && status != 404 && status != 405 && status != 421) abort();
    if (!memchr(request.path, 0, sizeof request.path)) abort();
    if (!memchr(request.known, 0, sizeof request.known)) abort();
    if (status == 200 && request.path[0] != '/') abort();
  }
  free(exact);
  return 0;
}
