/* http_serve: what is a request, and whose; slow and hostile askers hold up nobody. */
#include "runtime/command/http_serve.h"
#include "test/unit/runtime_data.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int status_of(const char *text) {
  HttpRequest request;
  return http_read_request(text, strlen(text), "127.0.0.1", &request);
}

static void requests(void **state) {
  (void)state;
  HttpRequest request;
  const char *good =
      "GET /data.json HTTP/1.1\r\nhost:  localhost:8011 \r\nIf-None-Match: \"1-2\"\r\n\r\n";
  assert_int_equal(http_read_request(good, strlen(good), "127.0.0.1", &request), 200);
  assert_string_equal(request.path, "/data.json");
  assert_string_equal(request.known, "\"1-2\"");
  assert_false(request.is_head);
  static const struct {
    const char *text;
    int status;
  } cases[] = {
      {"HEAD / HTTP/1.0\nHost: 127.0.0.1\n\n", 200},
      {"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200},
      {"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n", 200},
      {"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:8011\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: 127.0.0.1:8011@evil\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: localhost.\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {"PUT /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 400},
      {"GET /\r\nHost: localhost\r\n\r\n", 400},
      {"\r\n\r\n", 400},
      {"", 400},
      {"GET /0123456789012345678901234567890123456789012345678901234567890123456789 HTTP/1.1\r\n"
       "Host: localhost\r\n\r\n",
       404},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (status_of(cases[i].text) != cases[i].status)
      fail_msg("%s: %d", cases[i].text, status_of(cases[i].text));
  /* served to other machines: under any of this one's numbers */
  const char *outer = "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";
  assert_int_equal(http_read_request(outer, strlen(outer), "0.0.0.0", &request), 200);
}

static void answer_hello(void *user, const char *path, const char *known, HttpAnswer *out) {
  const Text *large = user;
  (void)known;
  if (strcmp(path, "/") != 0) return;
  *out = (HttpAnswer){200, "text/plain", large->at, large->count, "\"1\""};
}

static int connect_to(const HttpServer *server) {
  struct sockaddr_in place = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)http_port(server))};
  inet_pton(AF_INET, "127.0.0.1", &place.sin_addr);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&place, sizeof place), 0);
  return fd;
}

static void send_text(int fd, const char *text) {
  assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void turns(HttpServer *server, Text *large, int count) {
  for (int i = 0; i < count; i++)
    assert_int_equal(http_turn(server, 1, answer_hello, large), STATUS_OK);
}

/* Reads to the end while the server has its turns. */
static Text read_all(HttpServer *server, Text *large, int fd) {
  Text out = {0};
  char bytes[65536];
  for (;;) {
    turns(server, large, 1);
    ssize_t count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count == 0) break;
    if (count > 0) text_append(&out, bytes, (size_t)count);
  }
  close(fd);
  return out;
}

static void slow_ones_hold_up_nobody(void **state) {
  (void)state;
  enum { SLOW = 100 };
  HttpServer *server;
  Text large = {0};
  int slow[SLOW];
  for (int i = 0; i < 200000; i++) text_append(&large, "0123456789", 10);
  assert_int_equal(http_open("127.0.0.1", 0, &server), STATUS_OK);
  for (int i = 0; i < SLOW; i++) { /* half of a request, or an answer that nobody reads */
    slow[i] = connect_to(server);
    send_text(slow[i], i % 2 ? "GET / HT" : "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    turns(server, &large, 2);
  }
  int fd = connect_to(server);
  send_text(fd, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  Text got = read_all(server, &large, fd);
  assert_non_null(strstr(text_cstr(&got), "HTTP/1.1 200 OK\r\n"));
  assert_non_null(strstr(got.at, "frame-ancestors 'none'"));
  assert_true(got.count > large.count &&
              !memcmp(got.at + got.count - large.count, large.at, large.count));
  text_free(&got);
  fd = connect_to(server); /* a head without an end */
  for (int i = 0; i < 820; i++) send_text(fd, "X: 1234567");
  got = read_all(server, &large, fd);
  assert_non_null(strstr(text_cstr(&got), "HTTP/1.1 431 "));
  text_free(&got);
  fd = connect_to(server);
  send_text(fd, "HEAD /no HTTP/1.1\r\nHost: localhost\r\n\r\n");
  got = read_all(server, &large, fd);
  assert_non_null(strstr(text_cstr(&got), "HTTP/1.1 404 "));
  text_free(&got);
  for (int i = 0; i < SLOW; i++) close(slow[i]);
  HttpServer *second;
  assert_int_equal(http_open("127.0.0.1", http_port(server), &second), STATUS_USER);
  assert_int_equal(http_open("localhost", 0, &second), STATUS_USER);
  http_close(server);
  text_free(&large);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests),
      cmocka_unit_test(slow_ones_hold_up_nobody),
  };
  return cmocka_run_group_tests(tests, data_setup, data_teardown);
}
