/* turn: FT_TURN, a number: only every fifth of many cases. scripts/test gives the number of commits, so that five commits
 * have all of them; without it each is run. */
#ifndef FT_TEST_TURN_H
#define FT_TEST_TURN_H
#include <stdbool.h>
#include <stdlib.h>

static inline bool help_has_turns(void) {
  const char *turn = getenv("FT_TURN");
  return turn && *turn;
}
static inline bool help_has_its_turn(int number) {
  return !help_has_turns() || number % 5 == atoi(getenv("FT_TURN")) % 5;
}
#endif
