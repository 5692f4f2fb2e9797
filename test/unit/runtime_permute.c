/* runtime_permute: orders of elements in memory, and the copies between these and files, against
 * the definition: dimension i of what lies in memory is dimension perm[i] of the view. */
#include "runtime/common/permute.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 7;
static int64_t dice(int64_t sides) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((random_state >> 33) % (uint64_t)sides);
}

static Storage random_storage(void) {
  Storage s = {.view.rank = 1 + (int)dice(5)};
  for (int i = 0; i < s.view.rank; i++) {
    s.view.dim[i] = dice(4) ? 1 + dice(dice(6) ? 7 : 70) : 1;
    s.perm[i] = i;
  }
  for (int i = s.view.rank - 1; i > 0; i--) {
    int64_t k = dice(i + 1), keep = s.perm[i];
    s.perm[i] = s.perm[k];
    s.perm[k] = keep;
  }
  return s;
}

/* The place in memory, by counting through what lies there. */
static int64_t element_at(const Storage *s, int64_t place) {
  int64_t index[MAX_RANK], element = 0;
  for (int i = s->view.rank - 1; i >= 0; i--) {
    index[s->perm[i]] = place % s->view.dim[s->perm[i]];
    place /= s->view.dim[s->perm[i]];
  }
  for (int i = 0; i < s->view.rank; i++) element = element * s->view.dim[i] + index[i];
  return element;
}

static void orders(void **state) {
  (void)state;
  int merged_to_nothing = 0;
  for (int round = 0; round < 2000; round++) {
    Storage s = random_storage(), merged = storage_merged(&s), back = storage_inverse(&s);
    Shape shape = storage_shape(&s);
    int64_t count = shape_elements(&s.view);
    assert_true(storage_is_legal(&s, &s.view) && shape_elements(&shape) == count);
    assert_true(storage_equal(&s, &merged));
    assert_true(merged.view.rank <= s.view.rank && merged.view.rank != 1);
    bool moves = false;
    for (int64_t i = 0; i < count; i++) {
      int64_t element = element_at(&s, i);
      assert_int_equal(storage_element(&s, i), element);
      assert_int_equal(storage_element(&merged, i), element);
      assert_int_equal(storage_element(&back, element), i);
      moves |= element != i;
    }
    assert_int_equal(moves, merged.view.rank != 0);
    merged_to_nothing += !moves;
  }
  assert_true(merged_to_nothing > 100 && merged_to_nothing < 1500);
  Storage a = {{4, {6, 3, 5, 5}}, {0, 2, 3, 1}}, b = {{3, {6, 3, 25}}, {0, 2, 1}};
  Storage c = {{3, {6, 25, 3}}, {0, 2, 1}};
  assert_true(storage_equal(&a, &b) && !storage_equal(&a, &c));
}

static void copies(void **state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    Storage s = random_storage();
    bool is_wide = round % 2;
    int bytes = is_wide ? 4 : 2;
    PlanTensor tensor = {.type = {is_wide ? DT_F32 : DT_BF16, s.view}, .storage = s};
    int64_t count = shape_elements(&s.view);
    char *from = malloc((size_t)(count * bytes)), *to = malloc((size_t)(count * bytes));
    for (int64_t i = 0; i < count * bytes; i++) from[i] = (char)dice(256);
    permute_to_memory(&tensor, from, to);
    for (int64_t i = 0; i < count; i++)
      assert_memory_equal(to + i * bytes, from + element_at(&s, i) * bytes, (size_t)bytes);
    assert_int_equal(permute_in_place(&tensor, false, to), STATUS_OK);
    assert_memory_equal(to, from, (size_t)(count * bytes));
    assert_int_equal(permute_in_place(&tensor, true, to), STATUS_OK);
    permute_from_memory(&tensor, to, from);
    assert_int_equal(permute_in_place(&tensor, false, to), STATUS_OK);
    assert_memory_equal(to, from, (size_t)(count * bytes));
    free(from);
    free(to);
  }
}

/* Pieces of any size, each made of pieces of any size, are the whole. */
static void pieces(void **state) {
  (void)state;
  int several = 0;
  for (int round = 0; round < 300; round++) {
    Storage s = random_storage();
    PlanTensor tensor = {.type = {round % 2 ? DT_F32 : DT_BF16, s.view}, .storage = s};
    int64_t count = shape_elements(&s.view), bytes = dtype_bytes(tensor.type.dtype);
    int64_t most = 1 + dice(count), most_from = 1 + dice(count);
    if (count > 3000) continue; /* the check copies each piece */
    bool has_moved = storage_merged(&s).view.rank != 0;
    char *memory = malloc((size_t)(count * bytes)), *whole = malloc((size_t)(count * bytes));
    for (int64_t i = 0; i < count * bytes; i++) memory[i] = (char)dice(256);
    permute_from_memory(&tensor, memory, whole);
    for (PermutePiece to = {0}; to.first + to.count < count && has_moved;) {
      to = permute_piece(&tensor, false, to.first + to.count, most);
      assert_true(to.count > 0 && to.count <= most && to.first + to.count <= count);
      char *made = malloc((size_t)(to.count * bytes)); /* so that a sanitizer sees its ends */
      memset(made, 0x55, (size_t)(to.count * bytes));
      for (PermutePiece from = {0}; from.first + from.count < count; several++) {
        from = permute_piece(&tensor, true, from.first + from.count, most_from);
        assert_true(from.count > 0 && from.count <= most_from);
        char *read = malloc((size_t)(from.count * bytes));
        memcpy(read, memory + from.first * bytes, (size_t)(from.count * bytes));
        permute_piece_from_memory(&tensor, read, from, made, to);
        free(read);
      }
      assert_memory_equal(made, whole + to.first * bytes, (size_t)(to.count * bytes));
      free(made);
    }
    free(memory);
    free(whole);
  }
  assert_true(several > 1000);
}

/* A rank's part of memory, from anywhere to anywhere, piece by piece: its runs in the file are its
 * elements, each once. */
typedef struct {
  const PlanTensor *tensor;
  PermutePiece from, to;
  uint8_t *marks;
  int64_t runs;
} Marking;

static Status mark_run(void *context, int64_t first, int64_t count) {
  Marking *m = context;
  assert_true(count > 0 && first >= m->to.first && first + count <= m->to.first + m->to.count);
  for (int64_t i = first; i < first + count; i++) m->marks[i]++;
  m->runs++;
  return STATUS_OK;
}

static Status refuse_run(void *context, int64_t first, int64_t count) {
  (void)first;
  *(int64_t *)context += count;
  return STATUS_FAULT;
}

static void parts(void **state) {
  (void)state;
  int64_t runs = 0, elements = 0;
  for (int round = 0; round < 300; round++) {
    Storage s = random_storage();
    PlanTensor tensor = {.type = {DT_F32, s.view}, .storage = s};
    int64_t count = shape_elements(&s.view), most = 1 + dice(count), most_from = 1 + dice(count);
    int64_t first = dice(count), end = first + 1 + dice(count - first), told = 0;
    if (count > 3000 || !storage_merged(&s).view.rank) continue;
    Marking m = {.tensor = &tensor, .marks = calloc((size_t)count, 1)};
    for (m.to = (PermutePiece){0}; m.to.first + m.to.count < count;) {
      m.to = permute_piece(&tensor, false, m.to.first + m.to.count, most);
      for (m.from = (PermutePiece){first, 0}; (m.from.first += m.from.count) < end;) {
        int64_t left = end - m.from.first;
        m.from = permute_piece(&tensor, true, m.from.first, left < most_from ? left : most_from);
        assert_true(m.from.count > 0 && m.from.first + m.from.count <= end);
        assert_int_equal(permute_runs(&tensor, m.from, m.to, mark_run, &m), STATUS_OK);
      }
    }
    for (int64_t i = 0; i < count; i++) {
      bool is_in = i >= first && i < end;
      assert_int_equal(m.marks[element_at(&s, i)], is_in);
      elements += is_in;
    }
    runs += m.runs;
    PermutePiece all = {0, count};
    assert_int_equal(permute_runs(&tensor, all, all, refuse_run, &told), STATUS_FAULT);
    assert_int_equal(told, count); /* all in one */
    free(m.marks);
  }
  assert_true(runs > 1000 && runs < elements);
}

static void nothing_moves(void **state) {
  (void)state;
  float from[6] = {1, 2, 3, 4, 5, 6}, to[6] = {0};
  PlanTensor plain = {.type = {DT_F32, {2, {2, 3}}}}, empty = {.type = {DT_F32, {2, {0, 3}}}};
  empty.storage = (Storage){{2, {0, 3}}, {1, 0}};
  permute_to_memory(&empty, from, to);
  assert_true(to[0] == 0);
  permute_from_memory(&plain, from, to);
  assert_memory_equal(from, to, sizeof from);
  assert_int_equal(permute_in_place(&plain, true, to), STATUS_OK);
  assert_memory_equal(from, to, sizeof from);
  PermutePiece piece = permute_piece(&plain, false, 0, 4);
  assert_true(piece.first == 0 && piece.count == 4);
  piece = permute_piece(&plain, true, 4, 4);
  assert_true(piece.first == 4 && piece.count == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(orders), cmocka_unit_test(copies),
                                     cmocka_unit_test(pieces), cmocka_unit_test(parts),
                                     cmocka_unit_test(nothing_moves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
