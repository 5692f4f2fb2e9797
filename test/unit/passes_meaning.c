/* Passes keep the meaning of a graph: the interpreter gives the same roots before and after. And
 * the rules of simplify one by one: wherever a rule applies in the graphs below, its replacement
 * has the value of the node it replaces, for ordinary numbers and for NaN, infinities and zeros. A
 * rule that applies nowhere fails the suite, so a new rule needs a line in a graph here. */
#include "passes/pass.h"
#include "passes/probe.h"
#include "passes/simplify.h"
#include "test/random/graph.h"
#include "test/unit/turn.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ── the graphs ─────────────────────────────────────────────────────────────────────────────── */
static const char *const graphs[] = {
    /* sums, products */
    "graph \"sums\" {\n"
    "%x = param {name=\"x\"} : f32[12]\n%z = param {name=\"z\"} : f32[12]\n"
    "%i = input {name=\"i\"} : i32[12]\n"
    "%c0 = const {value=0} : f32[12]\n%c1 = const {value=1} : f32[12]\n"
    "%c3 = const {value=3} : f32[12]\n%c4 = const {value=0.25} : f32[12]\n"
    "%c7 = const {value=7} : f32[12]\n%cm = const {value=-1} : f32[12]\n"
    "%i0 = const {value=0} : i32[12]\n%i5 = const {value=5} : i32[12]\n"
    "%a1 = add %c3, %x : f32[12]\n%a2 = add %a1, %c4 : f32[12]\n%a3 = add %x, %c0 : f32[12]\n"
    "%a4 = add %x, %c3 : f32[12]\n%a5 = add %a4, %c4 : f32[12]\n"
    "%a6 = sub %c3, %x : f32[12]\n%a7 = add %a6, %c4 : f32[12]\n"
    "%n = neg %x : f32[12]\n%a8 = add %z, %n : f32[12]\n%a9 = add %n, %z : f32[12]\n"
    "%b1 = add %x, %x : f32[12]\n%b2 = sub %x, %c0 : f32[12]\n%b3 = sub %x, %c3 : f32[12]\n"
    "%b4 = sub %z, %n : f32[12]\n%b5 = sub %i, %i : i32[12]\n%b6 = sub %c0, %x : f32[12]\n"
    "%b7 = sub %x, %x : f32[12]\n%b8 = sub %x, %z : f32[12]\n%b9 = neg %b8 : f32[12]\n"
    "%m1 = mul %x, %c1 : f32[12]\n%m2 = mul %i, %i0 : i32[12]\n%m3 = mul %x, %cm : f32[12]\n"
    "%m4 = mul %x, %c3 : f32[12]\n%m5 = mul %m4, %c7 : f32[12]\n%m6 = mul %n, %c3 : f32[12]\n"
    "%nz = neg %z : f32[12]\n%m7 = mul %n, %nz : f32[12]\n%m8 = mul %c3, %x : f32[12]\n"
    "%m9 = mul %x, %c0 : f32[12]\n%mi = mul %i, %i5 : i32[12]\n"
    "%d1 = div %x, %c3 : f32[12]\n%d2 = mul %d1, %c7 : f32[12]\n%d3 = div %x, %c4 : f32[12]\n"
    "%d4 = div %m4, %c7 : f32[12]\n%d5 = div %d1, %c7 : f32[12]\n%d6 = div %x, %c1 : f32[12]\n"
    "%d7 = div %i, %i0 : i32[12]\n%d8 = div %x, %c0 : f32[12]\n"
    "%e1 = neg %n : f32[12]\n%e2 = neg %m4 : f32[12]\n%e3 = neg %d1 : f32[12]\n"
    "output \"a\" %a2\noutput \"b\" %a5\noutput \"c\" %a7\noutput \"d\" %a8\noutput \"e\" %a9\n"
    "output \"f\" %b1\noutput \"g\" %b4\noutput \"h\" %b9\noutput \"i\" %m5\noutput \"j\" %m7\n"
    "output \"k\" %d2\noutput \"l\" %d4\noutput \"m\" %d5\noutput \"n\" %d7\noutput \"o\" %e3\n"
    "output \"p\" %m9\noutput \"q\" %b7\noutput \"r\" %mi\noutput \"s\" %b3\noutput \"t\" %d3\n"
    "output \"u\" %a3\noutput \"v\" %b5\noutput \"w\" %b6\noutput \"x\" %m3\noutput \"y\" %m6\n"
    "}\n",
    /* powers, comparisons, logic, select, cast */
    "graph \"point\" {\n"
    "%x = param {name=\"x\"} : f32[12]\n%z = param {name=\"z\"} : f32[12]\n"
    "%p = input {name=\"p\"} : bool[12]\n%u = input {name=\"u\"} : u8[12]\n"
    "%t = const {value=1} : bool[12]\n%f = const {value=0} : bool[12]\n"
    "%c0 = const {value=0} : f32[12]\n%c1 = const {value=1} : f32[12]\n"
    "%c2 = const {value=2} : f32[12]\n%c3 = const {value=3} : f32[12]\n"
    "%ch = const {value=0.5} : f32[12]\n%cm = const {value=-1} : f32[12]\n"
    "%ck = const {value=-0.5} : f32[12]\n%ci = const {value=inf} : f32[12]\n"
    "%p0 = pow %x, %c0 : f32[12]\n%p1 = pow %x, %c1 : f32[12]\n%p2 = pow %x, %c2 : f32[12]\n"
    "%p3 = pow %x, %c3 : f32[12]\n%p4 = pow %x, %ch : f32[12]\n%p5 = pow %x, %cm : f32[12]\n"
    "%p6 = pow %x, %ck : f32[12]\n"
    "%l1 = lt %c3, %x : bool[12]\n%l2 = le %c3, %x : bool[12]\n%l3 = gt %c3, %x : bool[12]\n"
    "%l4 = ge %c3, %x : bool[12]\n%l5 = eq %c3, %x : bool[12]\n%l6 = ne %c3, %x : bool[12]\n"
    "%m1 = max %c3, %x : f32[12]\n%m2 = min %c3, %x : f32[12]\n%m3 = max %x, %x : f32[12]\n"
    "%m4 = min %x, %x : f32[12]\n%m5 = abs %x : f32[12]\n%m6 = abs %m5 : f32[12]\n"
    "%n = neg %x : f32[12]\n%m7 = abs %n : f32[12]\n"
    "%q1 = and %t, %p : bool[12]\n%q2 = or %f, %p : bool[12]\n%q3 = xor %t, %p : bool[12]\n"
    "%q4 = and %p, %p : bool[12]\n%q5 = or %p, %p : bool[12]\n%q6 = not %p : bool[12]\n"
    "%q7 = not %q6 : bool[12]\n%q8 = not %l5 : bool[12]\n%q9 = not %l6 : bool[12]\n"
    "%r1 = and %p, %f : bool[12]\n%r2 = or %p, %t : bool[12]\n%r3 = xor %p, %f : bool[12]\n"
    "%s1 = select %t, %x, %z : f32[12]\n%s2 = select %p, %x, %x : f32[12]\n"
    "%s3 = select %q6, %x, %z : f32[12]\n%s4 = select %p, %x, %z : f32[12]\n"
    "%s5 = select %p, %s4, %c1 : f32[12]\n%s6 = select %p, %c1, %s4 : f32[12]\n"
    "%s7 = select %p, %c1, %c1 : f32[12]\n"
    "%w1 = cast %u : i32[12]\n%w2 = cast %w1 : f32[12]\n%w3 = cast %w2 : f64[12]\n"
    "%w4 = cast %w3 : f32[12]\n%w5 = cast %x : f32[12]\n%w6 = cast %w4 : u8[12]\n"
    "%w7 = cast %x : i32[12]\n%w8 = cast %w7 : f32[12]\n"
    "%k1 = exp %c2 : f32[12]\n%k2 = add %c2, %c3 : f32[12]\n%k3 = lt %c2, %c3 : bool[12]\n"
    "%k4 = sub %ci, %ci : f32[12]\n%k5 = log %cm : f32[12]\n%k6 = cast %c2 : i32[12]\n"
    "%k7 = select %t, %c2, %c3 : f32[12]\n"
    "output \"a\" %p2\noutput \"b\" %p3\noutput \"d\" %p5\noutput \"e\" %l1\noutput \"f\" %l2\n"
    "output \"g\" %l3\noutput \"h\" %l4\noutput \"i\" %q8\noutput \"j\" %q9\noutput \"k\" %m1\n"
    "output \"l\" %m2\noutput \"m\" %m6\noutput \"n\" %m7\noutput \"o\" %q1\noutput \"p\" %q3\n"
    "output \"q\" %s1\noutput \"r\" %s5\noutput \"s\" %s6\noutput \"t\" %w4\noutput \"u\" %w6\n"
    "output \"v\" %w8\noutput \"w\" %k1\noutput \"x\" %k4\noutput \"y\" %k5\noutput \"z\" %k7\n"
    "output \"aa\" %s3\noutput \"ab\" %q7\noutput \"ac\" %r1\noutput \"ad\" %r2\noutput \"ae\" "
    "%r3\n"
    "}\n",
    /* moves, reductions, products */
    "graph \"moves\" {\n"
    "%x = param {name=\"x\"} : f32[3,4]\n%z = param {name=\"z\"} : f32[3,4]\n"
    "%v = param {name=\"v\"} : f32[1,4]\n%s = param {name=\"s\"} : f32[1,1]\n"
    "%o = param {name=\"o\"} : f32[2,1,3,1]\n%c = const {value=2} : f32[3,4]\n"
    "%r0 = reshape %c : f32[12]\n%r1 = reshape %x : f32[3,4]\n%r2 = reshape %x : f32[12]\n"
    "%r3 = reshape %r2 : f32[4,3]\n"
    "%t0 = transpose %c {perm=[1,0]} : f32[4,3]\n%t1 = transpose %x {perm=[1,0]} : f32[4,3]\n"
    "%t2 = transpose %t1 {perm=[1,0]} : f32[3,4]\n"
    "%t3 = transpose %o {perm=[1,0,3,2]} : f32[1,2,1,3]\n"
    "%c1 = const {value=5} : f32[1,4]\n%b0 = broadcast %c1 : f32[3,4]\n"
    "%b1 = broadcast %v : f32[1,4]\n%b2 = broadcast %s : f32[1,4]\n%b3 = broadcast %b2 : f32[3,4]\n"
    "%b4 = broadcast %v : f32[3,4]\n%b5 = broadcast %s : f32[3,4]\n"
    "%k1 = exp %b4 : f32[3,4]\n%k2 = add %b4, %b5 : f32[3,4]\n%k3 = mul %b4, %c : f32[3,4]\n"
    "%k4 = add %b4, %x : f32[3,4]\n"
    "%l0 = slice %c {start=[0,1], step=[1,1]} : f32[3,2]\n"
    "%l1 = slice %x {start=[0,0], step=[1,1]} : f32[3,4]\n"
    "%l2 = slice %x {start=[0,1], step=[2,1]} : f32[2,3]\n"
    "%l3 = slice %l2 {start=[1,0], step=[1,2]} : f32[1,2]\n"
    "%p0 = pad %x {value=0, low=[1,2], high=[0,1]} : f32[4,7]\n"
    "%l4 = slice %p0 {start=[1,2], step=[1,2]} : f32[3,2]\n"
    "%l5 = slice %p0 {start=[0,2], step=[1,2]} : f32[4,2]\n"
    "%l8 = slice %p0 {start=[1,2], step=[1,1]} : f32[3,5]\n"
    "%p1 = pad %p0 {value=0, low=[0,1], high=[0,0]} : f32[4,8]\n"
    "%p2 = pad %x {value=0, low=[0,0], high=[0,0]} : f32[3,4]\n"
    "%p3 = pad %c {value=2, low=[0,1], high=[0,0]} : f32[3,5]\n"
    "%p4 = pad %p0 {value=1, low=[0,1], high=[0,0]} : f32[4,8]\n"
    "%n0 = concat %x, %z, %x {axis=0} : f32[9,4]\n"
    "%l6 = slice %n0 {start=[4,1], step=[1,2]} : f32[2,2]\n"
    "%l7 = slice %n0 {start=[2,0], step=[1,1]} : f32[3,4]\n"
    "%n1 = concat %x {axis=1} : f32[3,4]\n"
    "%h0 = slice %x {start=[0,0], step=[1,1]} : f32[3,1]\n"
    "%h1 = slice %x {start=[0,1], step=[1,1]} : f32[3,3]\n"
    "%n2 = concat %h0, %h1 {axis=1} : f32[3,4]\n%n3 = concat %h1, %h0 {axis=1} : f32[3,4]\n"
    "%n4 = concat %c, %c {axis=0} : f32[6,4]\n%n5 = concat %h0, %n3, %h1 {axis=1} : f32[3,8]\n"
    "%p5 = pad %h0 {value=0, low=[0,3], high=[0,1]} : f32[3,5]\n"
    "%p6 = pad %h1 {value=0, low=[0,0], high=[0,2]} : f32[3,5]\n"
    "%p7 = add %p5, %p6 : f32[3,5]\n%p8 = pad %h0 {value=0, low=[0,4], high=[0,0]} : f32[3,5]\n"
    "%p9 = pad %p7 {value=0, low=[0,0], high=[0,1]} : f32[3,6]\n%q0 = add %p8, %p6 : f32[3,5]\n"
    "%q1 = pad %x {value=0, low=[0,0], high=[0,1]} : f32[3,5]\n%q2 = add %q1, %p8 : f32[3,5]\n"
    "%q3 = cast %h0 : f64[3,1]\n%q4 = cast %h1 : f64[3,3]\n%q5 = concat %q3, %q4 {axis=1} : "
    "f64[3,4]\n"
    "%q6 = cast %p5 : f64[3,5]\n%q7 = cast %p6 : f64[3,5]\n%q8 = add %q6, %q7 : f64[3,5]\n"
    "%e0 = sum %v {axes=[0]} : f32[1,4]\n%e1 = prod %v {axes=[0,1]} : f32[1,1]\n"
    "%e2 = rmax %v {axes=[0,1]} : f32[1,1]\n%e3 = rmin %v {axes=[0]} : f32[1,4]\n"
    "%e4 = argmax %v {axes=[0]} : i32[1,4]\n%e5 = argmin %v {axes=[0]} : i32[1,4]\n"
    "%f0 = sum %c {axes=[0]} : f32[1,4]\n%f1 = rmax %c {axes=[0]} : f32[1,4]\n"
    "%f2 = rmin %c {axes=[1]} : f32[3,1]\n%f3 = sum %b4 {axes=[0]} : f32[1,4]\n"
    "%f4 = sum %b4 {axes=[0,1]} : f32[1,1]\n%f5 = rmax %b4 {axes=[0,1]} : f32[1,1]\n"
    "%f6 = rmin %b4 {axes=[0]} : f32[1,4]\n%f7 = sum %x {axes=[0]} : f32[1,4]\n"
    "%f8 = sum %f7 {axes=[1]} : f32[1,1]\n%f9 = rmax %x {axes=[1]} : f32[3,1]\n"
    "%g0 = rmax %f9 {axes=[0]} : f32[1,1]\n%g1 = rmin %x {axes=[1]} : f32[3,1]\n"
    "%g2 = rmin %g1 {axes=[0]} : f32[1,1]\n"
    "%d0 = dot %t1, %z {} : f32[4,4]\n%d1 = dot %z, %t1 {} : f32[3,3]\n"
    "%d2 = dot %t1, %t1 {ta=true} : f32[3,3]\n"
    "%d3 = dot %x, %z {tb=true} : f32[3,3]\n"
    "output \"a\" %r3\noutput \"b\" %t2\noutput \"c\" %t3\noutput \"d\" %b3\noutput \"e\" %k1\n"
    "output \"f\" %k2\noutput \"g\" %k3\noutput \"h\" %k4\noutput \"i\" %l3\noutput \"j\" %l4\n"
    "output \"k\" %l5\noutput \"l\" %p1\noutput \"m\" %p3\noutput \"n\" %p4\noutput \"o\" %l6\n"
    "output \"p\" %l7\noutput \"q\" %n2\noutput \"r\" %n3\noutput \"s\" %n4\noutput \"t\" %e1\n"
    "output \"u\" %e2\noutput \"v\" %e4\noutput \"w\" %f4\noutput \"x\" %f5\noutput \"y\" %f6\n"
    "output \"z\" %f8\noutput \"aa\" %g0\noutput \"ab\" %g2\noutput \"ac\" %d0\noutput \"ad\" %d1\n"
    "output \"ae\" %d2\noutput \"af\" %d3\noutput \"ag\" %f0\noutput \"ah\" %f3\noutput \"ai\" "
    "%l0\n"
    "}\n",
    /* sums of products */
    "graph \"sums of products\" {\n"
    "%x = param {name=\"x\"} : f32[4,3]\n%z = param {name=\"z\"} : f32[4,3]\n"
    "%v = param {name=\"v\"} : f32[4,1]\n%w = param {name=\"w\"} : f32[1,3]\n"
    "%c = const {value=3} : f32[4,3]\n%vb = broadcast %v : f32[4,3]\n%wb = broadcast %w : "
    "f32[4,3]\n"
    "%a = mul %x, %vb : f32[4,3]\n%a1 = sum %a {axes=[1]} : f32[4,1]\n"
    "%b = mul %a, %z : f32[4,3]\n%b0 = neg %b : f32[4,3]\n%b1 = mul %b0, %c : f32[4,3]\n"
    "%b2 = sum %b1 {axes=[1]} : f32[4,1]\n%a3 = mul %x, %wb : f32[4,3]\n"
    "%a4 = sum %a3 {axes=[1]} : f32[4,1]\n%a5 = sum %a3 {axes=[0]} : f32[1,3]\n"
    "%t = sub %a, %b1 : f32[4,3]\n%t0 = add %t, %vb : f32[4,3]\n"
    "%t1 = sum %t0 {axes=[1]} : f32[4,1]\n%t2 = sum %t0 {axes=[0]} : f32[1,3]\n"
    "%xs = sum %x {axes=[1]} : f32[4,1]\n%third = const {value=0.3333333333333333} : f32[4,1]\n"
    "%mean = mul %xs, %third : f32[4,1]\n%mb = broadcast %mean : f32[4,3]\n"
    "%d = sub %x, %mb : f32[4,3]\n%d1 = sum %d {axes=[1]} : f32[4,1]  @~1:1\n"
    "%d2 = sum %d {axes=[0]} : f32[1,3]  @~1:1\n%d3 = sum %d {axes=[1]} : f32[4,1]\n"
    "output \"a\" %a1\noutput \"b\" %b2\noutput \"c\" %a4\noutput \"d\" %a5\noutput \"e\" %t1\n"
    "output \"f\" %t2\noutput \"g\" %d1\noutput \"h\" %d2\noutput \"i\" %d3\n}\n",
    /* pooling */
    "graph \"pooling\" {\n"
    "%x = param {name=\"x\"} : f32[2,3,5,4]\n%b = param {name=\"b\"} : f32[1,3,1,1]\n"
    "%v = param {name=\"v\"} : f32[1,3,1,4]\n%bb = broadcast %b : f32[2,3,5,4]\n"
    "%vb = broadcast %v : f32[2,3,5,4]\n%z = const {value=0} : f32[2,3,5,4]\n"
    "%a = add %x, %bb : f32[2,3,5,4]\n%c = le %a, %z : bool[2,3,5,4]\n"
    "%r = select %c, %z, %a : f32[2,3,5,4]\n"
    "%p = pool_max %r {kernel=[2,2], stride=[2,2]} : f32[2,3,2,2]\n"
    "%a1 = add %x, %vb : f32[2,3,5,4]\n"
    "%q = pool_max %a1 {kernel=[3,3], stride=[1,2], padding=[1,1,1,1]} : f32[2,3,5,2]\n"
    "%w = param {name=\"w\"} : f32[2,4,5,3]\n%bn = param {name=\"bn\"} : f32[1,1,1,3]\n"
    "%bw = broadcast %bn : f32[2,4,5,3]\n%aw = add %w, %bw : f32[2,4,5,3]\n"
    "%s = pool_max %aw {kernel=[3,2], stride=[2,1], padding=[1,0,1,1], layout=\"nhwc\"} : "
    "f32[2,2,5,3]\n"
    "%pp = mul %p, %p : f32[2,3,2,2]\n%ps = sum %pp {axes=[0,1,2,3]} : f32[1,1,1,1]\n"
    "%ss = sum %s {axes=[0,1,2,3]} : f32[1,1,1,1]\n%t = mul %ps, %ss : f32[1,1,1,1]\n"
    "%l = reshape %t : f32[]\nloss \"loss\" %l\n"
    "output \"p\" %p\noutput \"q\" %q\noutput \"s\" %s\n}\n",
    /* two layers, softmax and cross entropy, dropout, a running mean, an unused parameter */
    "graph \"train\" {\n"
    "%x = input {name=\"x\"} : f32[4,6]\n%t = input {name=\"t\"} : i32[4]\n"
    "%w1 = param {name=\"fc1.weight\", init=\"zeros\"} : f32[5,6]\n"
    "%b1 = param {name=\"fc1.bias\", init=\"zeros\"} : f32[5]\n"
    "%w2 = param {name=\"fc2.weight\", init=\"zeros\"} : f32[3,5]\n"
    "%w3 = param {name=\"again\", init=\"zeros\"} : f32[3,5]\n"
    "%run = state {name=\"mean\", init=\"zeros\"} : f32[1,5]\n"
    "%step = state step {name=\"@step\", init=\"zeros\"} : i64[]\n"
    "%seed = const {value=7} : i64[]\n"
    "%h0 = dot %x, %w1 {tb=true} : f32[4,5]\n%b2 = reshape %b1 : f32[1,5]\n"
    "%b3 = broadcast %b2 : f32[4,5]\n%h1 = add %h0, %b3 : f32[4,5]\n"
    "%z = const {value=0} : f32[4,5]\n%c = le %h1, %z : bool[4,5]\n"
    "%h2 = select %c, %z, %h1 : f32[4,5]\n"
    "%rnd = random %seed, %step {stream=1} : f32[4,5]\n%rate = const {value=0.3} : f32[4,5]\n"
    "%keep = ge %rnd, %rate : bool[4,5]\n%sc = const {value=1.4285714285714286} : f32[4,5]\n"
    "%up = mul %h2, %sc : f32[4,5]\n%h3 = select %keep, %up, %z : f32[4,5]\n"
    "%colsum = sum %h3 {axes=[0]} : f32[1,5]\n%four = const {value=4} : f32[1,5]\n"
    "%mean = div %colsum, %four : f32[1,5]\n%stop = stop_gradient %mean : f32[1,5]\n"
    "%momentum = const {value=0.9} : f32[1,5]\n%kept = mul %run, %momentum : f32[1,5]\n"
    "%next = add %kept, %stop : f32[1,5]\n%set = assign %next {target=\"mean\"} : f32[1,5]\n"
    "%meanb = broadcast %mean : f32[4,5]\n%h4 = sub %h3, %meanb : f32[4,5]\n"
    "%y1 = dot %h4, %w2 {tb=true} : f32[4,3]\n%wt = transpose %w2 {perm=[1,0]} : f32[5,3]\n"
    "%y2 = dot %h4, %wt : f32[4,3]\n%y = add %y1, %y2 : f32[4,3]\n"
    "%m = rmax %y {axes=[1]} : f32[4,1]\n%ms = stop_gradient %m : f32[4,1]\n"
    "%mb = broadcast %ms : f32[4,3]\n%s = sub %y, %mb : f32[4,3]\n%e = exp %s : f32[4,3]\n"
    "%se = sum %e {axes=[1]} : f32[4,1]\n%ls = log %se : f32[4,1]\n%lsb = broadcast %ls : "
    "f32[4,3]\n"
    "%lp = sub %s, %lsb : f32[4,3]\n%io = iota {axis=1} : i32[4,3]\n%t1 = reshape %t : i32[4,1]\n"
    "%t2 = broadcast %t1 : i32[4,3]\n%eq = eq %io, %t2 : bool[4,3]\n"
    "%zz = const {value=0} : f32[4,3]\n%pick = select %eq, %lp, %zz : f32[4,3]\n"
    "%total = sum %pick {axes=[0,1]} : f32[1,1]\n%l0 = reshape %total : f32[]\n"
    "%l1 = neg %l0 : f32[]\n%n = const {value=4} : f32[]\n%l = div %l1, %n : f32[]\n"
    "loss \"loss\" %l\nassign \"mean\" %set\noutput \"y\" %y\n}\n",
};
enum { GRAPH_COUNT = sizeof graphs / sizeof graphs[0] };

/* Where warnings go: "does not influence the loss" is right, and not news. */
static FILE *quiet;

static Graph *parse(Arena *arena, Diag *diag, int which) {
  Graph *graph;
  diag_init(diag, arena, quiet);
  if (graph_parse(arena, diag, "meaning", graphs[which], &graph, 1) != 1) fail();
  assert_true(graph_verify(graph, STAGE_FORWARD, diag));
  return graph;
}

/* ── comparing values ───────────────────────────────────────────────────────────────────────── */
static bool is_close(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return a == b;
  return fabs(a - b) <= 1e-12 * fmax(1, fmax(fabs(a), fabs(b)));
}
/* What is not finite, in a sum that is taken in another order or where a bias is infinite: that it
 * is, not which. */
static bool is_loosely_close(double a, double b) {
  return isfinite(a) && isfinite(b) ? is_close(a, b) : !isfinite(a) && !isfinite(b);
}
static bool is_equal(const Tensor *a, const Tensor *b, bool is_loose) {
  if (!type_equal(&a->type, &b->type)) return false;
  if (is_loose && a->f) {
    for (int64_t i = 0; i < shape_elements(&a->type.shape); i++)
      if (!is_loosely_close(a->f[i], b->f[i])) return false;
    return true;
  }
  for (int64_t i = 0; i < shape_elements(&a->type.shape); i++)
    if (a->f ? !is_close(a->f[i], b->f[i]) : a->i[i] != b->i[i]) return false;
  return true;
}

/* Leaves with NaN, infinities and zeros, in an order that depends on the name and the seed. */
static const Tensor *odd_leaf(const Node *leaf, void *context) {
  static const double odd[] = {NAN, INFINITY, -INFINITY, 0, 1, -1, 2, -2.5, 1e20, -1e-20, 3, 0.5};
  Probe *probe = context;
  Tensor *tensor = (Tensor *)probe_leaf(leaf, context);
  size_t at = (size_t)node_str(leaf, ATTR_NAME)[0] * 5 + (size_t)probe->seed * 7;
  for (int64_t i = 0; tensor->f && i < shape_elements(&tensor->type.shape); i++)
    tensor->f[i] = odd[(at + (size_t)i) % (sizeof odd / sizeof odd[0])];
  return tensor;
}

static Tensor **run(Arena *arena, Diag *diag, const Graph *graph, uint64_t seed, bool is_odd) {
  Probe probe = {arena, graph, NULL, seed, NULL};
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  bool ok =
      graph_interpret(graph, arena, is_odd ? odd_leaf : probe_leaf, &probe, false, values, diag);
  assert_true(ok);
  return values;
}

/* ── rules, one by one ──────────────────────────────────────────────────────────────────────── */
/* sqrt(-inf) is NaN and (-inf)^0.5 is inf; there we follow PyTorch, which takes the root. */
static bool is_root(const Node *node) {
  return node->op == OP_POW && fabs(node_float(node->input[1], ATTR_VALUE, 0)) == 0.5;
}

static int check_rule(SimplifyRun *rule, int op, int which) {
  int fired = 0;
  Arena *arena = arena_new();
  Diag diag;
  int count = parse(arena, &diag, which)->nodes.count;
  for (int i = 0; i < count; i++) {
    Graph *graph = parse(arena, &diag, which);
    Node *node = graph->nodes.at[i];
    if (op >= 0 && node->op != (Op)op) continue;
    Node *better = rule(graph, node);
    if (!better) continue;
    fired++;
    assert_true(type_equal(&better->type, &node->type));
    assert_true(graph_verify(graph, STAGE_FORWARD, &diag));
    for (uint64_t seed = 0; seed < 4; seed++)
      for (int odd = 0; odd < 2; odd++) {
        if (odd && is_root(node)) continue;
        Tensor **values = run(arena, &diag, graph, seed, odd);
        if (odd && node->origin.is_backward) continue; /* sum_of_deviations says why */
        if (!is_equal(values[node->id], values[better->id],
                      odd && (node->op == OP_SUM || node->op == OP_POOL_MAX)))
          fail_msg("%s: replacing %%%d, a '%s', by %%%d changes its value%s:\n%s", graph->name, i,
                   op_info[node->op].text, better->id, odd ? " for NaN, infinity or zero" : "",
                   graph_to_text(graph, arena));
      }
  }
  arena_free(arena);
  return fired;
}

static void check_table(const SimplifyRule *rules, const char *name) {
  for (int r = 0; rules[r].run; r++) {
    int fired = 0;
    for (int which = 0; which < GRAPH_COUNT; which++)
      fired += check_rule(rules[r].run, (int)rules[r].op, which);
    if (!fired)
      fail_msg("rule %d of %s, for '%s', applies nowhere", r, name, op_info[rules[r].op].text);
  }
}

static void rules(void **state) {
  (void)state;
  check_table(simplify_math_rules, "simplify_math_rules");
  check_table(simplify_move_rules, "simplify_move_rules");
  check_table(simplify_sum_rules, "simplify_sum_rules");
  check_table(simplify_single_rules, "simplify_single_rules");
  int folded = 0, sunk = 0;
  for (int which = 0; which < GRAPH_COUNT; which++) {
    folded += check_rule(simplify_fold, -1, which);
    sunk += check_rule(simplify_sink, -1, which);
  }
  assert_true(folded > 0);
  assert_true(sunk > 0);
}

/* ── whole passes ───────────────────────────────────────────────────────────────────────────── */
static void compare_roots(Arena *arena, Diag *diag, const Graph *before, const Graph *after,
                          const char *passes) {
  for (uint64_t seed = 0; seed < 4; seed++) {
    Tensor **old = run(arena, diag, before, seed, false);
    Tensor **fresh = run(arena, diag, after, seed, false);
    for (int i = 0; i < before->roots.count; i++) {
      const Root *root = &before->roots.at[i];
      Node *node = graph_find_root(after, root->kind, root->name);
      if (!node && root->kind == ROOT_GRADIENTS) continue;
      if (!node) fail_msg("%s: the root '%s' is gone after %s", before->name, root->name, passes);
      if (!is_equal(old[root->node->id], fresh[node->id], false))
        fail_msg("%s: the root '%s' changed after %s", before->name, root->name, passes);
    }
  }
}

static void check_passes(const char *passes, bool is_train) {
  for (int which = 0; which < GRAPH_COUNT; which++) {
    Arena *arena = arena_new();
    Diag diag;
    Graph *before = parse(arena, &diag, which);
    char *text = graph_to_text(before, arena);
    PassContext context = {arena, &diag, settings_new(arena),
                           is_train ? PASS_OF_TRAIN : PASS_OF_EVAL};
    Graph *after = passes_run_named(&context, before, passes);
    assert_non_null(after);
    compare_roots(arena, &diag, before, after, passes);
    assert_string_equal(text, graph_to_text(before, arena)); /* a pass leaves what it was given */
    arena_free(arena);
  }
}

static void each_pass(void **state) {
  (void)state;
  check_passes("shapes", true);
  check_passes("simplify", true);
  check_passes("cse", true);
  check_passes("dce", true);
  check_passes("shapes,simplify,cse,dce", true);
  check_passes("autodiff", true);
  check_passes("autodiff", false);
  check_passes("autodiff,optimizer", true);
}

/* The step of each of the last two graphs is the same whichever of the passes around autodiff run.
 */
static void step_is_the_same(void **state) {
  (void)state;
  static const char *const forms[] = {
      "shapes,autodiff,optimizer,simplify2,cse2,dce2", "simplify,cse,autodiff,optimizer,dce2",
      "shapes,simplify,cse,dce,autodiff,optimizer,cse2", "autodiff,simplify2,optimizer,simplify2",
      "shapes,simplify,cse,dce,autodiff,optimizer,simplify2,cse2,dce2"};
  static const char *const optimizers[] = {"sgd", "adam", "adamw"};
  static const char *const schedules[] = {"constant", "step", "linear", "cosine"};
  for (int o = 0; o < 6; o++)
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
      Arena *arena = arena_new();
      Diag diag;
      const char *why;
      SettingValue *settings = settings_new(arena);
      setting_set(arena, settings, setting_find("train.optimizer"), optimizers[o % 3], &why);
      setting_set(arena, settings, setting_find("train.schedule"), schedules[i % 4], &why);
      setting_set(arena, settings, setting_find("train.momentum"), i % 2 ? "0.9" : "0", &why);
      setting_set(arena, settings, setting_find("train.nesterov"), i > 2 ? "true" : "false", &why);
      setting_set(arena, settings, setting_find("train.clip"), i % 3 ? "0.5" : "0", &why);
      Graph *graph = parse(arena, &diag, GRAPH_COUNT - 1 - o / 3);
      PassContext context = {arena, &diag, settings, PASS_OF_TRAIN, false};
      Graph *plain = passes_run_named(&context, graph, "autodiff,optimizer");
      Graph *other = passes_run_named(&context, graph, forms[i]);
      assert_non_null(plain);
      assert_non_null(other);
      assert_true(plain->roots.count > graph->roots.count + 1);
      compare_roots(arena, &diag, plain, other, forms[i]);
      arena_free(arena);
    }
}

/* Products that differ in an attribute that only one of them has. Whether cse compares two nodes
 * depends on where they fall in its table: in some of so many small graphs they meet. */
static void attributes_tell_apart(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Diag diag;
  diag_init(&diag, arena, stderr);
  PassContext context = {arena, &diag, settings_new(arena), PASS_OF_TRAIN, false};
  for (int n = 1; n <= 200; n++) {
    const char *text = arena_printf(arena,
                                    "graph \"g\" {\n%%w = param {name=\"w\"} : f32[%d,%d]\n"
                                    "%%a = dot %%w, %%w : f32[%d,%d]\n"
                                    "%%b = dot %%w, %%w {tb=true} : f32[%d,%d]\n"
                                    "output \"a\" %%a\noutput \"b\" %%b\n}\n",
                                    n, n, n, n, n, n);
    Graph *graph;
    assert_int_equal(graph_parse(arena, &diag, "graph", text, &graph, 1), 1);
    Graph *after = passes_run_named(&context, graph, "cse");
    assert_ptr_not_equal(graph_find_root(after, ROOT_OUTPUT, "a"),
                         graph_find_root(after, ROOT_OUTPUT, "b"));
  }
  arena_free(arena);
}

/* ── random graphs ──────────────────────────────────────────────────────────────────────────── */
static int random_count(void) { return getenv("FT_SOAK") && *getenv("FT_SOAK") ? 2000 : 150; }

static void random_graphs(void **state) {
  (void)state;
  static const char *const forms[] = {
      "shapes",
      "simplify",
      "cse",
      "dce",
      "simplify,cse,dce,autodiff,optimizer",
      "autodiff,optimizer",
      "shapes,simplify,cse,dce,autodiff,heads,optimizer,simplify2,cse2,dce2,heads_join"};
  for (int seed = 0; seed < random_count(); seed++) {
    if (!help_has_its_turn(seed)) continue;
    Arena *arena = arena_new();
    Diag diag;
    diag_init(&diag, arena, quiet);
    Graph *graph = graph_random(arena, (uint64_t)seed, 4 + seed % 40);
    PassContext context = {arena, &diag, settings_new(arena), PASS_OF_TRAIN, false};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
      Graph *after = passes_run_named(&context, graph, forms[i]);
      assert_non_null(after);
      compare_roots(arena, &diag, graph, after, forms[i]);
    }
    Graph *once = passes_run_named(&context, graph, "autodiff,optimizer,simplify2");
    Graph *twice = passes_run_named(&context, once, "simplify2");
    assert_string_equal(graph_to_text(once, arena), graph_to_text(twice, arena));
    Graph *plain = passes_run_named(&context, graph, forms[5]);
    compare_roots(arena, &diag, plain, passes_run_named(&context, graph, forms[6]), forms[6]);
    context.is_plain = true; /* all attention is written out */
    context.scratch = arena;
    Graph *written = pass_attention(&context, plain);
    assert_non_null(written);
    compare_roots(arena, &diag, plain, written, "attention");
    compare_roots(arena, &diag, written, pass_streams(&context, written), "streams");
    arena_free(arena);
  }
}

/* A move of all params along one random direction. */
typedef struct {
  Probe probe;
  double step;
} Moved;
static const Tensor *moved_leaf(const Node *leaf, void *context) {
  Moved *moved = context;
  Tensor *value = (Tensor *)probe_leaf(leaf, &moved->probe);
  if (leaf->op != OP_PARAM) return value;
  Probe other = moved->probe;
  other.seed += 1000;
  const Tensor *direction = probe_leaf(leaf, &other);
  for (int64_t i = 0; i < shape_elements(&leaf->type.shape); i++)
    value->f[i] += moved->step * direction->f[i];
  return value;
}
static double loss_at(Arena *arena, Diag *diag, const Graph *graph, double step) {
  Moved moved = {{arena, graph, NULL, 0, NULL}, step};
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, moved_leaf, &moved, false, values, diag));
  return values[graph_find_root(graph, ROOT_LOSS, NULL)->id]->f[0];
}

/* The gradient times a direction is the slope of the loss along it. A kink (abs, relu) between the
 * two points of a difference makes it wrong, so a slope is taken from the steps that agree. */
static void random_gradients(void **state) {
  (void)state;
  int smooth = 0, count = 0;
  for (int seed = 0; seed < random_count(); seed++) {
    if (!help_has_its_turn(seed)) continue;
    Arena *arena = arena_new();
    Diag diag;
    diag_init(&diag, arena, quiet);
    Graph *graph = graph_random(arena, (uint64_t)seed, 4 + seed % 40);
    PassContext context = {arena, &diag, settings_new(arena), PASS_OF_TRAIN, false};
    Graph *step = passes_run_named(&context, graph, "autodiff");
    assert_non_null(step);
    Node *pack = graph_find_root(step, ROOT_GRADIENTS, NULL);
    if (!pack) continue;
    count++;
    Tensor **values = run(arena, &diag, step, 0, false);
    double slope = 0, size = 0;
    Probe direction = {arena, step, NULL, 1000, NULL};
    for (int i = 0; i < step->nodes.count; i++) {
      Node *param = step->nodes.at[i];
      if (param->op != OP_PARAM) continue;
      const Tensor *along = probe_leaf(param, &direction);
      const double *gradient = values[pack->id]->f + node_int(param, ATTR_OFFSET, 0);
      for (int64_t k = 0; k < shape_elements(&param->type.shape); k++) {
        slope += along->f[k] * gradient[k];
        size += fabs(along->f[k] * gradient[k]);
      }
    }
    bool agrees = false;
    double fine = 0, h = 1e-5;
    for (; h > 1e-8; h /= 4) {
      fine = (loss_at(arena, &diag, step, h) - loss_at(arena, &diag, step, -h)) / (2 * h);
      agrees |= fabs(fine - slope) <= 1e-5 * fmax(1, size);
    }
    if (!agrees)
      fail_msg("random graph %d: slope %.10g, differences %.10g (size %g)\n%s", seed, slope, fine,
               size, graph_to_text(graph, arena));
    smooth += agrees && slope != 0;
    arena_free(arena);
  }
  assert_true(smooth > count / 2);
}

/* What has been simplified once does not change when it is simplified again. */
static void fixpoint(void **state) {
  (void)state;
  for (int which = 0; which < GRAPH_COUNT; which++) {
    Arena *arena = arena_new();
    Diag diag;
    PassContext context = {arena, NULL, settings_new(arena), PASS_OF_TRAIN, false};
    Graph *graph = parse(arena, &diag, which);
    context.diag = &diag;
    Graph *once = passes_run_named(&context, graph, "simplify");
    Graph *twice = passes_run_named(&context, once, "simplify");
    assert_string_equal(graph_to_text(once, arena), graph_to_text(twice, arena));
    arena_free(arena);
  }
}

int main(void) {
  quiet = tmpfile();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules),
      cmocka_unit_test(each_pass),
      cmocka_unit_test(step_is_the_same),
      cmocka_unit_test(fixpoint),
      cmocka_unit_test(attributes_tell_apart),
      cmocka_unit_test(random_graphs),
      cmocka_unit_test(random_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
