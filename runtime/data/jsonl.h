/* jsonl: JSON lines: in each line of a text an object, one of whose members is a document. Documents
 * become tokens as they are read, by a tokenizer or as bytes, and stay in memory in as many bytes as a
 * token needs. The text is hostile input and may change while it is read: every byte is looked at
 * once. */
#ifndef FT_RUNTIME_JSONL_H
#define FT_RUNTIME_JSONL_H
#include "base/lookup.h"
#include "plan/plan.h"
#include "runtime/common/element.h"
#include "runtime/common/status.h"
#include "runtime/text/bpe.h"

/* What a recipe says of them. */
typedef struct {
  const char *text, *label; /* names of members; label NULL: none is read */
  Bpe *tokenizer;           /* NULL: a token is a byte */
  int64_t end;              /* the token behind each document, -1: none */
  Element element;          /* of a token: u8, u16 or u32 */
} JsonlForm;
/* tokenizer: what was opened for the option of this name, if it is given. */
STATUS_CHECKED Status jsonl_form(const DataSource *data, Bpe *tokenizer, JsonlForm *out);

enum { JSONL_MOST_CLASSES = 1 << 20 };
typedef struct {
  void *tokens; /* malloc'd, as the two lists */
  size_t count, room;
  int64_t *behind; /* by document: the token behind its last one */
  int64_t *label;  /* by document, where labels are read: a number, or of a text its class … */
  int64_t documents, document_room;
  Lookup classes; /* … by text; its arena is the caller's */
  bool has_texts, has_numbers, is_listed;
} JsonlTexts;
/* Texts that the list "neg, pos" names are classes 0, 1, …, and there are no others. */
STATUS_CHECKED Status jsonl_list_classes(JsonlTexts *texts, const char *list);
/* Appends the documents of a file. The failure says in which line and column. */
STATUS_CHECKED Status jsonl_add(const JsonlForm *form, const uint8_t *at, size_t count,
                                JsonlTexts *out);
/* The same of a file, plain, gzip or zstd; the failure begins with its path. */
STATUS_CHECKED Status jsonl_add_file(const JsonlForm *form, const char *path, JsonlTexts *out);
/* Gives back memory that is not used, and numbers classes that are not listed in the order of their
 * bytes. */
STATUS_CHECKED Status jsonl_finish(const JsonlForm *form, JsonlTexts *texts);
void jsonl_free(JsonlTexts *texts);
#endif
