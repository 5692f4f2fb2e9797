/* ir_verify_places: a planned graph in which a reader does not find what it wants is refused, with
 * the reader's name; one that is in order is not. */
#include "ir_help.h"

#define AT(arena, at) "place=\"" arena "\", at=" #at "}"
#define X "%x = input {name=\"x\", " AT("input", 0) " : f32[2,3] "
#define Y "%y = input {name=\"y\", " AT("input", 64) " : f32[2,3] "
#define LOOP(name, operand, op)                                                                    \
  "%k" name " = fused " operand " {kind=\"loop\"} body { %a = arg {index=0} : f32[2,3] %b = " op     \
  " %a : f32[2,3] result %b } : f32[2,3] "
#define RESULT(name, arena, at) "%" name " = result %k" name " {index=0, " AT(arena, at) " : f32[2,3] "
#define EXP(name, operand, at) LOOP(name, operand, "exp") RESULT(name, "work", at)
/* a kernel of a row: what is stored of the row's place comes from `line`, over which it may lie */
#define ROW(operand, lines, at)                                                                    \
  "%kr = fused " operand " {kind=\"row\", axes=[1]} body { %a = arg {index=0} : f32[2,3] " lines    \
  " result %z } : f32[2,3] %r = result %kr {index=0, " AT("work", at) " : f32[2,3] "
#define SOFTMAX                                                                                    \
  "%s = sum %a {axes=[1]} : f32[2,1] %t = broadcast %s : f32[2,3] %z = mul %a, %t : f32[2,3]"
#define STATE "%s = state {name=\"s\", " AT("state", 0) " : f32[2,3] "
#define ASSIGN(value) "%w = assign " value " {target=\"s\", " AT("state", 0) " : f32[2,3] "
#define SQUARE "%x = input {name=\"x\", " AT("input", 0) " : f32[3,3] "
#define TURNED(stored)                                                                             \
  "%ke = fused %x {kind=\"loop\"} body { %a = arg {index=0} : f32[3,3] %b = exp %a : f32[3,3] "     \
  "result %b } : f32[3,3] %e = result %ke {index=0, " AT("work", 0) " : f32[3,3] "                  \
  "%kf = fused %e {kind=\"loop\"} body { %a = arg {index=0} : f32[3,3] "                            \
  "%t = transpose %a {perm=[1,0]} : f32[3,3] %b = " stored " : f32[3,3] result %b } : f32[3,3] "   \
  "%f = result %kf {index=0, " AT("work", 0) " : f32[3,3] output \"f\" %f"

static const struct {
  const char *lines, *why; /* NULL: in order */
} cases[] = {
    {X EXP("e", "%x", 0) "output \"e\" %e", NULL},
    {X LOOP("e", "%x", "exp") "%e = result %ke {index=0} : f32[2,3] output \"e\" %e",
     "has no place"},
    {X EXP("e", "%x", -64) "output \"e\" %e", "lies outside of its place"},
    {X EXP("e", "%x", 9223372036854775800) "output \"e\" %e", "lies outside of its place"},
    /* live ranges */
    {X EXP("e", "%x", 0) EXP("f", "%x", 64) "output \"e\" %e output \"f\" %f", NULL},
    {X EXP("e", "%x", 0) EXP("f", "%x", 0) "output \"e\" %e output \"f\" %f",
     "node %2 = result: the step shows %2, whose place in work at 0 holds %4 by then"},
    {X EXP("e", "%x", 0) EXP("f", "%x", 20) "output \"e\" %e output \"f\" %f", "at 0 holds %4"},
    {X EXP("e", "%x", 0) EXP("f", "%x", 0) "output \"f\" %f", NULL}, /* nothing reads e */
    {X EXP("e", "%x", 0) EXP("f", "%x", 0) EXP("g", "%e", 64) "output \"g\" %g",
     "node %5 = fused: reads %2, whose place in work at 0 holds %4 by then"},
    {X EXP("e", "%x", 0) "%v = reshape %e {" AT("work", 64) " : f32[6] output \"v\" %v",
     "is a view with another place"},
    {X EXP("e", "%x", 0) "%v = reshape %e {" AT("work", 0) " : f32[6] output \"v\" %v", NULL},
    /* leaves */
    {X "%y = input {name=\"y\", " AT("input", 8) " : f32[2,3]",
     "node %1 = input: shares bytes with %0"},
    {X Y "", NULL},
    {X LOOP("e", "%x", "exp") RESULT("e", "input", 0) "output \"e\" %e",
     "is overwritten by %2, which nothing assigns to it"},
    {STATE EXP("e", "%s", 0) ASSIGN("%e") "assign \"s\" %w", NULL},
    {STATE LOOP("e", "%s", "exp") RESULT("e", "state", 0) ASSIGN("%e") "assign \"s\" %w", NULL},
    {STATE LOOP("e", "%s", "exp") RESULT("e", "state", 0) EXP("f", "%s", 0)
         ASSIGN("%e") "assign \"s\" %w output \"f\" %f",
     "reads %0, whose place in state at 0 holds %2 by then"},
    {STATE LOOP("e", "%s", "exp") RESULT("e", "state", 0) EXP("f", "%e", 0)
         ASSIGN("%e") "assign \"s\" %w output \"f\" %f",
     NULL},
    {STATE X LOOP("e", "%x", "exp") RESULT("e", "state", 12) ASSIGN("%e") "assign \"s\" %w",
     "copies %3 onto a part of itself"},
    /* in the place of an operand */
    {X EXP("e", "%x", 0) EXP("f", "%e", 0) "output \"f\" %f", NULL},
    {X EXP("e", "%x", 0) EXP("f", "%e", 4) "output \"f\" %f", "which its kernel may still read"},
    {SQUARE TURNED("exp %a"), NULL},
    {SQUARE TURNED("exp %t"), "is written over %2, which its kernel may still read"},
    {SQUARE TURNED("add %a, %t"), "which its kernel may still read"},
    {X EXP("e", "%x", 0) ROW("%e", SOFTMAX, 0) "output \"r\" %r", NULL},
    {X EXP("e", "%x", 0) ROW("%e", "%n = exp %a : f32[2,3] " SOFTMAX, 0) "output \"r\" %r", NULL},
    {X EXP("e", "%x", 0)
         ROW("%e",
             "%s = sum %a {axes=[1]} : f32[2,1] %q = slice %a {start=[0,1], step=[1,1]} : f32[2,1] "
             "%p = add %s, %q : f32[2,1] %t = broadcast %p : f32[2,3] %z = mul %a, %t : f32[2,3]",
             0) "output \"r\" %r",
     "which its kernel may still read"},
    {SQUARE
     "%ke = fused %x {kind=\"loop\"} body { %a = arg {index=0} : f32[3,3] %b = exp %a : f32[3,3] "
     "result %b } : f32[3,3] %e = result %ke {index=0, " AT(
         "work",
         0) " : f32[3,3] "
            "%kr = fused %e {kind=\"row\", axes=[1]} body { %a = arg {index=0} : f32[3,3] "
            "%t = transpose %a {perm=[1,0]} : f32[3,3] %s = sum %t {axes=[1]} : f32[3,1] "
            "%u = broadcast %s : f32[3,3] %z = mul %a, %u : f32[3,3] result %z } : f32[3,3] "
            "%r = result %kr {index=0, " AT("work", 0) " : f32[3,3] output \"r\" %r",
     "which its kernel may still read"},
    {X EXP("e", "%x",
           0) "%kc = fused %e {kind=\"column\", axes=[0]} body { %a = arg {index=0} : f32[2,3] "
              "%s = sum %a {axes=[0]} : f32[1,3] %n = neg %a : f32[2,3] result %s result %n } : "
              "f32[1,3] "
              "%r = result %kc {index=0, " AT(
                  "work", 64) " : f32[1,3] "
                              "%n = result %kc {index=1, " AT(
                                  "work", 0) " : f32[2,3] output \"r\" %r output \"n\" %n",
     "which its kernel may still read"},
    {X "%k = fused %x {kind=\"loop\"} body { %a = arg {index=0} : f32[2,3] %b = exp %a : f32[2,3] "
       "%c = neg %a : f32[2,3] result %b result %c } : f32[2,3] "
       "%b = result %k {index=0, " AT(
           "work", 0) " : f32[2,3] "
                      "%c = result %k {index=1, " AT(
                          "work", 16) " : f32[2,3] output \"b\" %b output \"c\" %c",
     "node %3 = result: shares bytes with another result"},
    /* products read their operands while they write */
    {SQUARE "%d = dot %x, %x {" AT("work", 0) " : f32[3,3] %e = dot %d, %x {" AT(
         "work", 0) " : f32[3,3] output \"e\" %e",
     "which its kernel may still read"},
    /* gradients side by side */
    {X Y EXP("e", "%x", 0) EXP("f", "%y", 64) "%g = pack %e, %f {offsets=[0,16], " AT(
         "grads", 0) " : f32[32] output \"g\" %g",
     NULL},
    {X Y LOOP("e", "%x", "exp") RESULT("e", "grads", 0) LOOP("f", "%y", "exp")
         RESULT("f", "grads", 64) "%g = pack %e, %f {offsets=[0,16], " AT(
             "grads", 0) " : f32[32] output \"g\" %g output \"e\" %e",
     NULL},
    {X Y LOOP("e", "%x", "exp") RESULT("e", "grads", 64) LOOP("f", "%y", "exp")
         RESULT("f", "grads",
                0) "%g = pack %e, %f {offsets=[0,16], " AT("grads", 0) " : f32[32] output \"g\" %g",
     "takes in %5, whose place in grads at 0 holds %6 by then"},
};

static void planned(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    char *message;
    size_t size;
    FILE *out = open_memstream(&message, &size);
    Diag diag;
    diag_init(&diag, arena, out);
    bool good = graph_verify(help_graph(arena, cases[i].lines), STAGE_PLANNED, &diag);
    fclose(out);
    if (good != !cases[i].why || (cases[i].why && !strstr(message, cases[i].why)))
      fail_msg("%s\ngives: %s\nnot: %s", cases[i].lines, message,
               cases[i].why ? cases[i].why : "(in order)");
    free(message);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(planned)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
