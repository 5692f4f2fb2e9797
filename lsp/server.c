/* server: see server.h. */
#include "lsp/server.h"
#include "base/version.h"
#include "lsp/parse.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of JSON-RPC and of the protocol. */
enum {
  PARSE_ERROR = -32700,
  INVALID_REQUEST = -32600,
  METHOD_NOT_FOUND = -32601,
  INVALID_PARAMS = -32602,
  NOT_INITIALIZED = -32002,
  REQUEST_CANCELLED = -32800,
  REQUEST_FAILED = -32803
};
enum { READ_BYTES = 1 << 16, MOST_CHANGES = 2000 };

/* ── writing ──────────────────────────────────────────────────────────────────────────────── */
/* What jansson has made is its own allocator's. */
static void release_json(char *text) {
  json_malloc_t allocate;
  json_free_t release;
  json_get_alloc_funcs(&allocate, &release);
  release(text);
}

static void send_message(Server *server, json_t *message) {
  char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
  if (text) {
    fprintf(server->out, "Content-Length: %zu\r\n\r\n%s", strlen(text), text);
    fflush(server->out);
  }
  release_json(text);
  json_decref(message);
}

static void send_result(Server *server, json_t *id, json_t *result) {
  send_message(server, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

static void send_error(Server *server, json_t *id, int code, const char *message) {
  json_t *to = id ? json_incref(id) : json_null();
  send_message(server, json_pack("{s:s, s:o, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", to, "error",
                                 "code", code, "message", desk_string(message)));
}

static void send_notification(Server *server, const char *method, json_t *params) {
  send_message(server,
               json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}

static void send_diagnostics(Server *server, const OpenFile *file, json_t *list) {
  json_t *params = json_pack("{s:o, s:o}", "uri", desk_string(file->uri), "diagnostics", list);
  if (file->has_version) json_object_set_new(params, "version", json_integer(file->version));
  send_notification(server, "textDocument/publishDiagnostics", params);
}

/* ── reading ──────────────────────────────────────────────────────────────────────────────── */
static json_t *member(json_t *object, const char *name) { return json_object_get(object, name); }

static void cancel_waiting(Server *server, json_t *params) {
  json_t *id = member(params, "id");
  for (int i = 0; i < server->waiting_count; i++)
    if (json_equal(member(server->waiting[i].message, "id"), id))
      server->waiting[i].is_cancelled = true;
}

/* Takes the messages that are there whole, as many as there is room for. */
static void take_messages(Server *server) {
  while (server->waiting_count < SERVER_MOST_WAITING && !server->is_over) {
    const char *body;
    size_t count;
    WireResult result = wire_take(&server->wire, &body, &count);
    if (result == WIRE_NOTHING) return;
    if (result == WIRE_BAD) {
      send_error(server, NULL, INVALID_REQUEST, server->wire.why);
      continue;
    }
    const char *why;
    json_t *message = parse_message(body, count, &why);
    if (!message) {
      send_error(server, NULL, PARSE_ERROR, why);
      continue;
    }
    const char *method = json_string_value(member(message, "method"));
    if (method && !strcmp(method, "$/cancelRequest")) {
      cancel_waiting(server, member(message, "params"));
      json_decref(message);
      continue;
    }
    server->waiting[server->waiting_count++] = (Waiting){.message = message};
  }
}

void server_give(Server *server, const char *bytes, size_t count) {
  wire_give(&server->wire, bytes, count);
  take_messages(server);
}

/* Reads what there is; waits for more if `waits`. False: the stream has ended. */
static bool server_read(Server *server, bool waits) {
  static char bytes[READ_BYTES];
  struct pollfd poll_in = {.fd = server->in, .events = POLLIN};
  while (server->waiting_count < SERVER_MOST_WAITING && !server->has_ended) {
    int ready = poll(&poll_in, 1, waits ? -1 : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    ssize_t count = read(server->in, bytes, sizeof bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0)
      server->has_ended = true;
    else
      server_give(server, bytes, (size_t)count);
    waits = false;
  }
  return !server->has_ended;
}

/* ── the analysis ─────────────────────────────────────────────────────────────────────────── */
/* Asked while it runs: has its file changed, or is the end near? */
static bool server_goes_on(void *user) {
  Server *server = user;
  if (server->in >= 0) server_read(server, false);
  for (int i = 0; i < server->waiting_count; i++) {
    json_t *message = server->waiting[i].message;
    const char *method = json_string_value(member(message, "method"));
    const char *uri =
        json_string_value(member(member(member(message, "params"), "textDocument"), "uri"));
    if (method && (!strcmp(method, "exit") || !strcmp(method, "shutdown"))) return false;
    bool changes = method && (!strcmp(method, "textDocument/didChange") ||
                              !strcmp(method, "textDocument/didClose"));
    if (changes && uri && !strcmp(uri, server->analysed)) return false;
  }
  return true;
}

static const char *server_text_of(void *user, const char *path, size_t *length) {
  Server *server = user;
  for (int i = 0; i < server->desk.count; i++) {
    OpenFile *file = server->desk.file[i];
    if (strcmp(file->path, path) != 0 || file->is_lost) continue;
    *length = file->document.text.count;
    return text_cstr(&file->document.text);
  }
  return NULL;
}

static json_t *note_for_file(const char *message) {
  return json_pack("[{s:{s:{s:i, s:i}, s:{s:i, s:i}}, s:i, s:s, s:s}]", "range", "start", "line", 0,
                   "character", 0, "end", "line", 0, "character", 0, "severity", 3, "source", "ftc",
                   "message", message);
}

static void analyse(Server *server, OpenFile *file) {
  AnalysisHost host = {.goes_on = server_goes_on, .text_of = server_text_of, .user = server};
  file->is_dirty = false;
  if (file->is_lost) {
    send_diagnostics(server, file,
                     note_for_file("this file is longer than 512 KiB: it is not looked at as you "
                                   "type; ftc says all of it"));
    return;
  }
  server->analysed = file->uri;
  Analysis *analysis =
      analysis_run(file->path, text_cstr(&file->document.text), file->document.text.count, &host);
  server->analysed = NULL;
  if (!analysis) { /* its next text comes */
    file->is_dirty = !server->has_ended && server->waiting_count > 0;
    return;
  }
  send_diagnostics(server, file, diagnose_answer(&server->desk, file, analysis));
  desk_keep(&server->desk, file, analysis);
}

/* ── documents ────────────────────────────────────────────────────────────────────────────── */
static Position read_position(json_t *position) {
  json_int_t line = json_integer_value(member(position, "line")),
             character = json_integer_value(member(position, "character"));
  line = line < 0 ? 0 : line > UINT32_MAX ? UINT32_MAX : line;
  character = character < 0 ? 0 : character > UINT32_MAX ? UINT32_MAX : character;
  return (Position){(uint32_t)line, (uint32_t)character};
}

static void set_document(OpenFile *file, json_t *text) {
  size_t length = json_string_length(text);
  file->is_lost = !json_is_string(text) || length > DOCUMENT_MOST;
  document_set(&file->document, file->is_lost ? "" : json_string_value(text),
               file->is_lost ? 0 : length);
}

static void change_text(Server *server, OpenFile *file, json_t *change) {
  json_t *range = member(change, "range"), *text = member(change, "text");
  if (!range) {
    set_document(file, text);
    return;
  }
  if (file->is_lost) return;
  if (!json_is_string(text) ||
      file->document.text.count + json_string_length(text) > DOCUMENT_MOST + DOCUMENT_MOST / 2) {
    file->is_lost = true;
    return;
  }
  size_t from =
      document_offset(&file->document, read_position(member(range, "start")), server->desk.is_utf8);
  size_t to =
      document_offset(&file->document, read_position(member(range, "end")), server->desk.is_utf8);
  document_edit(&file->document, from < to ? from : to, from < to ? to : from,
                json_string_value(text), json_string_length(text));
}

static void read_version(OpenFile *file, json_t *document) {
  json_t *version = member(document, "version");
  file->has_version = json_is_integer(version);
  file->version = json_integer_value(version);
}

static void did_open(Server *server, json_t *params) {
  json_t *document = member(params, "textDocument");
  const char *uri = json_string_value(member(document, "uri"));
  if (!uri) return;
  OpenFile *file = desk_find(&server->desk, uri);
  if (!file) file = desk_open(&server->desk, uri);
  if (!file) return;
  read_version(file, document);
  set_document(file, member(document, "text"));
  desk_touch(&server->desk, file);
}

static void did_change(Server *server, OpenFile *file, json_t *params) {
  json_t *changes = member(params, "contentChanges");
  size_t count = json_array_size(changes);
  read_version(file, member(params, "textDocument"));
  if (count > MOST_CHANGES) file->is_lost = true; /* until it comes as a whole */
  for (size_t i = 0; i < count; i++)
    if (count <= MOST_CHANGES || !member(json_array_get(changes, i), "range"))
      change_text(server, file, json_array_get(changes, i));
  if (file->document.text.count > DOCUMENT_MOST) file->is_lost = true;
  desk_touch(&server->desk, file);
}

static void did_close(Server *server, OpenFile *file) {
  send_diagnostics(server, file, json_array());
  desk_touch(&server->desk, file); /* others that import it take the disk's again */
  desk_close(&server->desk, file);
}

static void handle_notification(Server *server, const char *method, json_t *params) {
  const char *uri = json_string_value(member(member(params, "textDocument"), "uri"));
  OpenFile *file = uri ? desk_find(&server->desk, uri) : NULL;
  if (!strcmp(method, "exit")) server->is_over = true;
  if (!server->is_initialized || server->is_shut_down) return;
  if (!strcmp(method, "textDocument/didOpen"))
    did_open(server, params);
  else if (!strcmp(method, "textDocument/didChange") && file)
    did_change(server, file, params);
  else if (!strcmp(method, "textDocument/didClose") && file)
    did_close(server, file);
  else if (!strcmp(method, "textDocument/didSave") && file)
    desk_touch(&server->desk, file);
}

/* ── requests ─────────────────────────────────────────────────────────────────────────────── */
static json_t *server_initialize(Server *server, json_t *params) {
  json_t *capabilities = member(params, "capabilities");
  json_t *encodings = member(member(capabilities, "general"), "positionEncodings"), *one;
  json_t *publish = member(member(capabilities, "textDocument"), "publishDiagnostics");
  size_t i;
  json_array_foreach(encodings, i,
                     one) if (json_is_string(one) && !strcmp(json_string_value(one), "utf-8"))
      server->desk.is_utf8 = true;
  server->desk.has_related = json_is_true(member(publish, "relatedInformation"));
  server->is_initialized = true;
  return json_pack("{s:{s:s, s:{s:b, s:i, s:{s:b}}, s:b, s:b, s:b, s:b, s:b, s:b, "
                   "s:{s:[s,s,s,s]}}, s:{s:s, s:s}}",
                   "capabilities", "positionEncoding", server->desk.is_utf8 ? "utf-8" : "utf-16",
                   "textDocumentSync", "openClose", 1, "change", 2, "save", "includeText", 0,
                   "hoverProvider", 1, "definitionProvider", 1, "referencesProvider", 1,
                   "documentHighlightProvider", 1, "documentSymbolProvider", 1, "renameProvider", 1,
                   "completionProvider", "triggerCharacters", ".", "|", "=", "(", "serverInfo",
                   "name", "ftc", "version", FT_VERSION);
}

static void answer_rename(Server *server, json_t *id, OpenFile *file, size_t offset,
                          json_t *params) {
  const char *why, *name = json_string_value(member(params, "newName"));
  json_t *edits = name ? find_rename(&server->desk, file, offset, name, &why) : NULL;
  if (!name)
    send_error(server, id, INVALID_PARAMS, "newName is missing");
  else if (!edits)
    send_error(server, id, REQUEST_FAILED, why);
  else
    send_result(server, id, edits);
}

/* Of a place in a text. */
static void answer_place(Server *server, json_t *id, const char *what, OpenFile *file,
                         json_t *params) {
  Desk *desk = &server->desk;
  size_t offset =
      document_offset(&file->document, read_position(member(params, "position")), desk->is_utf8);
  if (!strcmp(what, "rename"))
    answer_rename(server, id, file, offset, params);
  else if (!strcmp(what, "hover"))
    send_result(server, id, hover_answer(desk, file, offset));
  else if (!strcmp(what, "completion"))
    send_result(server, id, complete_answer(desk, file, offset));
  else if (!strcmp(what, "definition"))
    send_result(server, id, find_definition(desk, file, offset));
  else if (!strcmp(what, "documentHighlight"))
    send_result(server, id, find_highlights(desk, file, offset));
  else
    send_result(
        server, id,
        find_references(desk, file, offset,
                        json_is_true(member(member(params, "context"), "includeDeclaration"))));
}

static void answer_document(Server *server, json_t *id, const char *what, json_t *params) {
  static const char *const of_places[] = {
      "hover", "completion", "definition", "references", "documentHighlight", "rename", NULL};
  const char *uri = json_string_value(member(member(params, "textDocument"), "uri"));
  OpenFile *file = uri ? desk_find(&server->desk, uri) : NULL;
  bool is_place = text_is_one_of(what, of_places),
       is_known = is_place || !strcmp(what, "documentSymbol");
  if (!is_known)
    send_error(server, id, METHOD_NOT_FOUND, "ftc does not know this method");
  else if (!file)
    send_error(server, id, INVALID_PARAMS, "this file is not open");
  else if (is_place && !json_is_object(member(params, "position")))
    send_error(server, id, INVALID_PARAMS, "position is missing");
  else if (!is_place)
    send_result(server, id, find_symbols(&server->desk, file));
  else
    answer_place(server, id, what, file, params);
}

static void handle_request(Server *server, json_t *id, const char *method, json_t *params) {
  static const char document[] = "textDocument/";
  if (!strcmp(method, "initialize") && !server->is_initialized && !server->is_shut_down)
    send_result(server, id, server_initialize(server, params));
  else if (!server->is_initialized)
    send_error(server, id, NOT_INITIALIZED, "initialize comes first");
  else if (server->is_shut_down || !strcmp(method, "initialize"))
    send_error(server, id, INVALID_REQUEST, "not at this time");
  else if (!strcmp(method, "shutdown")) {
    server->is_shut_down = true;
    send_result(server, id, json_null());
  } else if (!strncmp(method, document, sizeof document - 1)) {
    answer_document(server, id, method + sizeof document - 1, params);
  } else {
    send_error(server, id, METHOD_NOT_FOUND, "ftc does not know this method");
  }
}

static void handle_message(Server *server, const Waiting *waiting) {
  json_t *id = member(waiting->message, "id"), *params = member(waiting->message, "params");
  const char *method = json_string_value(member(waiting->message, "method"));
  bool is_answer =
      !method && (member(waiting->message, "result") || member(waiting->message, "error"));
  bool is_id = json_is_string(id) || json_is_number(id);
  if (is_answer) return; /* nothing is asked of an editor */
  if (!method || (id && !is_id))
    send_error(server, is_id ? id : NULL, INVALID_REQUEST, "this is no message of JSON-RPC 2.0");
  else if (!id)
    handle_notification(server, method, params);
  else if (waiting->is_cancelled)
    send_error(server, id, REQUEST_CANCELLED, "cancelled");
  else
    handle_request(server, id, method, params);
}

/* ── the loop ─────────────────────────────────────────────────────────────────────────────── */
void server_init(Server *server, int in, FILE *out) {
  *server = (Server){.out = out, .in = in};
  desk_init(&server->desk);
}

void server_free(Server *server) {
  for (int i = 0; i < server->waiting_count; i++) json_decref(server->waiting[i].message);
  desk_free(&server->desk);
  wire_free(&server->wire);
}

/* The file that was touched last. */
static OpenFile *dirty_file(Server *server) {
  OpenFile *found = NULL;
  for (int i = 0; i < server->desk.count; i++) {
    OpenFile *file = server->desk.file[i];
    if (file->is_dirty && !server->is_shut_down && (!found || file->used > found->used))
      found = file;
  }
  return found;
}

bool server_step(Server *server) {
  if (server->is_over) return false;
  if (server->waiting_count) {
    Waiting first = server->waiting[0];
    memmove(server->waiting, server->waiting + 1,
            sizeof *server->waiting * (size_t)--server->waiting_count);
    handle_message(server, &first);
    json_decref(first.message);
    take_messages(server);
    return true;
  }
  OpenFile *file = dirty_file(server);
  if (file) analyse(server, file);
  return file != NULL;
}

int server_run(int in, FILE *out) {
  static Server server;
  server_init(&server, in, out);
  while (!server.is_over) {
    bool is_idle = !server.waiting_count && !dirty_file(&server);
    server_read(&server, is_idle);
    if (!server_step(&server) && server.has_ended) break;
  }
  bool is_clean = server.is_over && server.is_shut_down;
  server_free(&server);
  return is_clean ? 0 : 1;
}
