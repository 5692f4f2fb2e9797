/* text_form: what becomes of a text: how its tokens are laid out in rows as long as the model's inputs,
 * and which input gets what of a row. For the language, which refuses what does not go together, and for the
 * runtime, to which a plan may say anything. */
#ifndef FT_PLAN_TEXT_FORM_H
#define FT_PLAN_TEXT_FORM_H
#include "plan/plan.h"

/* What an input gets of a row of T tokens; all but the last two are [B, T], these [B]. */
#define TEXT_PARTS(X)                                                                              \
  X(TOKENS, "tokens")       /* … */                                                                \
  X(TARGETS, "targets")     /* those to be predicted; -1: none is asked for */                     \
  X(DOCUMENTS, "documents") /* by token its document's number in the row, from 1; 0: padding */    \
  X(POSITIONS, "positions") /* by token its place in its document, from 0; 0: padding */           \
  X(LENGTHS, "lengths")     /* tokens that are no padding */                                       \
  X(LABEL, "label")         /* of the document */
typedef enum {
#define X(ID, word) TEXT_##ID,
  TEXT_PARTS(X)
#undef X
      TEXT_PART_COUNT
} TextPart;
const char *text_part_word(TextPart part);

typedef enum {
  TEXT_WINDOWS, /* the tokens one behind the other, whatever documents they are of */
  TEXT_PACK,    /* as many documents as there is room for */
  TEXT_PAD      /* one document */
} TextRows;

enum { TEXT_MOST_INPUTS = TEXT_PART_COUNT };
typedef struct {
  TextRows rows;
  bool moves; /* windows that begin elsewhere in each epoch (runtime/data/source_text.h); then there
                 are tokens, and targets or not */
  const Transform *layout, *mask; /* pack or pad; NULL: none */
  int mask_place;                 /* of mask in the chain */
  int64_t shift;                  /* targets: how many tokens further on, where nothing is masked */
  TextPart part[TEXT_MOST_INPUTS];
  int count;
} TextForm;
/* For a model of so many inputs. False: *why, to be freed, says what does not go together. */
bool text_form(const DataSource *data, int inputs, TextForm *out, Text *why);
/* The lengths of rows that `pad` makes batches of; NULL: one. */
const TransformArgument *text_form_buckets(const TextForm *form);
/* Is it a text of windows that move, for any model? */
bool text_moves(const DataSource *data);
#endif
