/* watch: what an editor asks of a compilation: what each name of the user's files stood for, where it
 * was bound, and whether to go on. A compilation that is watched stops behind the two graphs: nothing
 * is built again for other batches (sizes.c). */
#ifndef FT_FRONTEND_WATCH_H
#define FT_FRONTEND_WATCH_H
#include "base/lookup.h"
#include "frontend/builder.h"

typedef struct {
  Loc loc; /* of the name */
  const char *name;
  Value value;    /* the first one; what follows the first in a repeat or another call is counted */
  Loc definition; /* nowhere: built in */
  bool is_dimension;
  bool differs; /* it was a tensor of another type, or another number, later */
} Mention;

typedef struct Watch {
  Arena *arena;
  /* Asked now and then; false: the compilation ends soon, without a message. NULL: it goes on. */
  bool (*goes_on)(void *user);
  /* The text of a file that is imported, as an editor has it; NULL: as the disk does. */
  const char *(*text_of)(void *user, const char *path, size_t *length);
  void *user;
  uint64_t ticks;
  bool has_ended;
  uint16_t std_first; /* the first file of the standard library; 0: it was not read */
  VEC(Mention) mentions;
  Lookup places; /* mentions by place and name */
} Watch;

void watch_init(Watch *watch, Arena *arena);
/* What stands at this place under this name; NULL: nothing that was evaluated. */
const Mention *watch_at(const Watch *watch, Loc loc, const char *name);

/* For the front end; without a watch they do nothing. */
void watch_mention(Builder *b, const char *name, const Variable *variable, Loc loc);
bool watch_ends(Builder *b);
#endif
