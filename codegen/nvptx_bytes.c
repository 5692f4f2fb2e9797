/* nvptx_bytes: loop kernels that transpose elements of one byte and do nothing else, as products of 8-bit floats ask for
 * (passes/fp8_products.c). A block has a tile of 128 × 128 bytes, or of 64 × 64 where those are too few. A thread reads 16
 * neighbours of four lines, turns them into words of four lines, and puts these into shared memory; from there the block
 * stores 16 bytes of the result at a time. Lines whose length is no multiple of 16 have a pitch: what lies behind their end is
 * written like the rest, but not read, so the last bytes of an operand's line are read one by one.
 *
 * In shared memory a line of the result is `pieces` of 16 bytes, and lines lie one behind the other. The number of a piece,
 * of all of them, is changed by an exclusive or of its lowest three bits with a number that the 16 columns of one thread
 * share: so the threads of a warp meet all banks once, as they write and as they read. */
#include "codegen/nvptx_private.h"
#include "codegen/turn.h"

enum {
  BYTES_PIECE = 16,
  BYTES_WORDS = 4, /* of a piece; so many lines are turned together, too */
  BYTES_LARGE = 128,
  BYTES_SMALL = 64,
  BYTES_ENOUGH = 2 * MULTIPROCESSORS,
  BYTES_LINES = 8 /* pieces that share all banks */
};

typedef struct {
  Entry entry;
  TurnShape shape;
  int64_t tile, pieces, threads; /* tile: of both dimensions, pieces: of a line of it */
  int64_t from[MAX_RANK], to[MAX_RANK]; /* how far neighbours in each dimension are apart */
  LLVMValueRef first[MAX_RANK], base[2]; /* of the block; of its operand and its result */
  LLVMValueRef thread, memory;
} Bytes;

/* ── which kernels ──────────────────────────────────────────────────────────────────────────── */

static const Node *behind_reshapes(const Node *node) {
  while (node->op == OP_RESHAPE) node = node->input[0];
  return node;
}

/* Distances in memory, whose rows have a pitch or 0; false where a row there is several of the tensor's. */
static bool find_distances(const TurnShape *shape, const int *order, const Type *type, int64_t *distance) {
  int last = order[shape->rank - 1];
  if (type->pitch && shape_last(&type->shape) != shape->extent[last]) return false;
  int64_t next = 1;
  for (int i = shape->rank - 1; i >= 0; i--) {
    distance[order[i]] = next;
    next *= i == shape->rank - 1 && type->pitch ? type->pitch : shape->extent[order[i]];
  }
  return true;
}

/* Does every line begin at a multiple of 16 bytes? */
static bool has_whole_pieces(const TurnShape *shape, const int64_t *distance) {
  for (int d = 0; d < shape->rank; d++)
    if (distance[d] != 1 && distance[d] % BYTES_PIECE) return false;
  return true;
}

static int64_t bytes_tiles(const Bytes *bytes, int d) {
  const TurnShape *shape = &bytes->shape;
  bool is_cut = d == shape->row || d == shape->column;
  return is_cut ? (shape->extent[d] + bytes->tile - 1) / bytes->tile : shape->extent[d];
}
static int64_t bytes_blocks(const Bytes *bytes) {
  int64_t count = 1;
  for (int d = 0; d < bytes->shape.rank; d++) count *= bytes_tiles(bytes, d);
  return count;
}

static bool find_moved_bytes(Bytes *bytes, const Job *job) {
  TurnShape *shape = &bytes->shape;
  if (job->operand_count != 1 || job->result_count != 1) return false;
  const Node *turned = behind_reshapes(job->node->body->roots.at[0].node);
  const Type *from = &job->node->input[0]->type, *to = &job->result_type[0];
  if (turned->op != OP_TRANSPOSE || behind_reshapes(turned->input[0])->op != OP_ARG) return false;
  if (dtype_bytes(from->dtype) != 1 || from->dtype == DT_BOOL) return false; /* a bool becomes 0 or 1 as it is moved */
  if (!turn_describe(turned, shape)) return false;
  if (shape->extent[shape->row] < BYTES_SMALL || shape->extent[shape->column] < BYTES_SMALL) return false;
  int before[MAX_RANK], behind[MAX_RANK];
  for (int d = 0; d < shape->rank; d++) {
    before[shape->source[d]] = d;
    behind[d] = d;
  }
  if (!find_distances(shape, before, from, bytes->from) || !find_distances(shape, behind, to, bytes->to)) return false;
  if (!has_whole_pieces(shape, bytes->from) || !has_whole_pieces(shape, bytes->to)) return false;
  bytes->tile = BYTES_LARGE;
  if (bytes_blocks(bytes) < BYTES_ENOUGH) bytes->tile = BYTES_SMALL;
  bytes->pieces = bytes->tile / BYTES_PIECE;
  bytes->threads = bytes->pieces * bytes->tile / BYTES_WORDS;
  return bytes_blocks(bytes) <= INT32_MAX;
}

/* ── the kernel ─────────────────────────────────────────────────────────────────────────────── */

static void open_bytes(Bytes *bytes, Job *job) {
  Entry *entry = &bytes->entry;
  TurnShape *shape = &bytes->shape;
  entry_open(entry, job, job->name, (int)bytes->threads, false);
  bytes->thread = entry_special(entry, "tid.x");
  bytes->memory = entry_shared(entry, "turned", job->module->i8, (int)(bytes->tile * bytes->tile));
  LLVMValueRef block = entry_special(entry, "ctaid.x");
  for (int i = 0; i < 2; i++) bytes->base[i] = entry_const(entry, 0);
  for (int d = shape->rank - 1; d >= 0; d--) {
    LLVMValueRef at = entry_rem(entry, block, bytes_tiles(bytes, d));
    block = entry_div(entry, block, bytes_tiles(bytes, d));
    bool is_cut = d == shape->row || d == shape->column;
    bytes->first[d] = is_cut ? entry_mul(entry, at, bytes->tile) : at;
    if (is_cut) continue; /* places in the tile come to these */
    bytes->base[0] = entry_add(entry, bytes->base[0], entry_mul(entry, at, bytes->from[d]));
    bytes->base[1] = entry_add(entry, bytes->base[1], entry_mul(entry, at, bytes->to[d]));
  }
}

static LLVMTypeRef piece_type(Bytes *bytes) { return LLVMVectorType(bytes->entry.job->module->i32, BYTES_WORDS); }

static LLVMValueRef bytes_xor(Bytes *bytes, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildXor(bytes->entry.b, a, b, ""); }

/* What columns share whose place in the tile, in pieces, is this. */
static LLVMValueRef bytes_change(Bytes *bytes, LLVMValueRef column_piece) {
  return entry_mul(&bytes->entry, column_piece, BYTES_LINES / bytes->pieces);
}

static LLVMValueRef bytes_number(Bytes *bytes, unsigned value) { return LLVMConstInt(bytes->entry.job->module->i32, value, false); }

static LLVMValueRef bytes_permuted(Bytes *bytes, LLVMValueRef a, LLVMValueRef b, unsigned selector) {
  LLVMValueRef arguments[3] = {a, b, bytes_number(bytes, selector)};
  return emit_intrinsic(&bytes->entry.emitter, "llvm.nvvm.prmt", NULL, arguments, 3);
}

/* Bytes of the line's end, of which `count` are there, the others 0, as a piece. */
static LLVMValueRef load_end(Bytes *bytes, LLVMValueRef pointer, LLVMValueRef at, int64_t count) {
  LLVMBuilderRef b = bytes->entry.b;
  Module *module = bytes->entry.job->module;
  LLVMValueRef piece = LLVMConstNull(LLVMVectorType(module->i8, BYTES_PIECE));
  for (int64_t e = 0; e < count; e++) {
    LLVMValueRef address = emit_at(&bytes->entry.emitter, module->i8, pointer, entry_add(&bytes->entry, at, entry_const(&bytes->entry, e)));
    LLVMValueRef one = LLVMBuildLoad2(b, module->i8, address, "");
    piece = LLVMBuildInsertElement(b, piece, one, bytes_number(bytes, (unsigned)e), "");
  }
  return LLVMBuildBitCast(b, piece, piece_type(bytes), "");
}

/* The pieces of four lines: `at` has their places, `left` says how many bytes there are from the first of them on. */
static void load_lines(Bytes *bytes, const LLVMValueRef *at, LLVMValueRef left, LLVMValueRef *line) {
  Entry *entry = &bytes->entry;
  LLVMValueRef pointer = entry->emitter.pointer[0];
  int64_t end = bytes->shape.extent[bytes->shape.row] % BYTES_PIECE;
  LLVMBasicBlockRef whole = NULL, part = NULL, after = NULL;
  LLVMValueRef ends[BYTES_WORDS];
  if (end) {
    whole = emit_block(&entry->emitter, "whole");
    part = emit_block(&entry->emitter, "part");
    after = emit_block(&entry->emitter, "loaded");
    LLVMBuildCondBr(entry->b, entry_less(entry, left, entry_const(entry, BYTES_PIECE)), part, whole);
    LLVMPositionBuilderAtEnd(entry->b, part);
    for (int i = 0; i < BYTES_WORDS; i++) ends[i] = load_end(bytes, pointer, at[i], end);
    LLVMBuildBr(entry->b, after);
    LLVMPositionBuilderAtEnd(entry->b, whole);
  }
  for (int i = 0; i < BYTES_WORDS; i++) {
    line[i] = LLVMBuildLoad2(entry->b, piece_type(bytes), emit_at(&entry->emitter, bytes->entry.job->module->i8, pointer, at[i]), "");
    LLVMSetAlignment(line[i], BYTES_PIECE);
  }
  if (!end) return;
  LLVMBuildBr(entry->b, after);
  LLVMPositionBuilderAtEnd(entry->b, after);
  for (int i = 0; i < BYTES_WORDS; i++) {
    LLVMValueRef phi = LLVMBuildPhi(entry->b, piece_type(bytes), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){line[i], ends[i]}, (LLVMBasicBlockRef[]){whole, part}, 2);
    line[i] = phi;
  }
}

/* Four columns of four lines: words of a column each. */
static void turn_words(Bytes *bytes, const LLVMValueRef *word, LLVMValueRef *column) {
  enum { LOW = 0x5140, HIGH = 0x7362, FIRST = 0x5410, SECOND = 0x7632 };
  LLVMValueRef low[2], high[2];
  for (int i = 0; i < 2; i++) {
    low[i] = bytes_permuted(bytes, word[2 * i], word[2 * i + 1], LOW);
    high[i] = bytes_permuted(bytes, word[2 * i], word[2 * i + 1], HIGH);
  }
  column[0] = bytes_permuted(bytes, low[0], low[1], FIRST);
  column[1] = bytes_permuted(bytes, low[0], low[1], SECOND);
  column[2] = bytes_permuted(bytes, high[0], high[1], FIRST);
  column[3] = bytes_permuted(bytes, high[0], high[1], SECOND);
}

/* The place of a word in shared memory: of column e of the thread's, of its four lines. */
static LLVMValueRef word_place(Bytes *bytes, LLVMValueRef piece, LLVMValueRef four, int64_t e) {
  Entry *entry = &bytes->entry;
  LLVMValueRef number = entry_add(entry, entry_mul(entry, piece, BYTES_PIECE * bytes->pieces), entry_div(entry, four, BYTES_WORDS));
  int64_t ahead = e * bytes->pieces; /* its lowest three bits are 0 in `number`, or a line of it is a half of all banks */
  number = bytes_xor(bytes, bytes_xor(bytes, number, bytes_change(bytes, piece)), entry_const(entry, ahead % BYTES_LINES));
  number = entry_add(entry, number, entry_const(entry, ahead / BYTES_LINES * BYTES_LINES));
  LLVMValueRef within = entry_rem(entry, four, BYTES_WORDS);
  return entry_add(entry, entry_mul(entry, number, BYTES_PIECE), entry_mul(entry, within, 4));
}

/* The operand's part: threads side by side read a line. Places behind the last are those of the last. */
static void load_moved_bytes(Bytes *bytes) {
  Entry *entry = &bytes->entry;
  const TurnShape *shape = &bytes->shape;
  int64_t length = shape->extent[shape->row], lines = shape->extent[shape->column];
  LLVMValueRef piece = entry_rem(entry, bytes->thread, bytes->pieces), four = entry_div(entry, bytes->thread, bytes->pieces);
  LLVMValueRef along = entry_add(entry, bytes->first[shape->row], entry_mul(entry, piece, BYTES_PIECE));
  if (length % bytes->tile) along = entry_min(entry, along, entry_const(entry, (length - 1) / BYTES_PIECE * BYTES_PIECE));
  LLVMValueRef at[BYTES_WORDS], line[BYTES_WORDS];
  for (int i = 0; i < BYTES_WORDS; i++) {
    LLVMValueRef own = entry_add(entry, entry_mul(entry, four, BYTES_WORDS), entry_const(entry, i));
    own = entry_add(entry, bytes->first[shape->column], own);
    if (lines % bytes->tile) own = entry_min(entry, own, entry_const(entry, lines - 1));
    at[i] = entry_add(entry, bytes->base[0], entry_add(entry, along, entry_mul(entry, own, bytes->from[shape->column])));
  }
  load_lines(bytes, at, entry_sub(entry, entry_const(entry, length), along), line);
  for (int w = 0; w < BYTES_WORDS; w++) {
    LLVMValueRef word[BYTES_WORDS], column[BYTES_WORDS];
    for (int i = 0; i < BYTES_WORDS; i++)
      word[i] = LLVMBuildExtractElement(entry->b, line[i], bytes_number(bytes, (unsigned)w), "");
    turn_words(bytes, word, column);
    for (int i = 0; i < BYTES_WORDS; i++) {
      LLVMValueRef place = word_place(bytes, piece, four, w * BYTES_WORDS + i);
      LLVMSetAlignment(LLVMBuildStore(entry->b, column[i], emit_at(&entry->emitter, entry->job->module->i8, bytes->memory, place)), 4);
    }
  }
}

/* The result's part: threads side by side store a line, with what is behind its end in its last piece. */
static void store_moved_bytes(Bytes *bytes) {
  Entry *entry = &bytes->entry;
  const TurnShape *shape = &bytes->shape;
  int64_t length = shape->extent[shape->column], lines = shape->extent[shape->row];
  LLVMValueRef piece[BYTES_WORDS], column[BYTES_WORDS], along[BYTES_WORDS];
  for (int i = 0; i < BYTES_WORDS; i++) {
    LLVMValueRef number = entry_add(entry, bytes->thread, entry_const(entry, i * bytes->threads));
    column[i] = entry_div(entry, number, bytes->pieces);
    along[i] = entry_mul(entry, entry_rem(entry, number, bytes->pieces), BYTES_PIECE);
    number = bytes_xor(bytes, number, bytes_change(bytes, entry_div(entry, column[i], BYTES_PIECE)));
    LLVMValueRef address = emit_at(&entry->emitter, entry->job->module->i8, bytes->memory, entry_mul(entry, number, BYTES_PIECE));
    piece[i] = LLVMBuildLoad2(entry->b, piece_type(bytes), address, "");
    LLVMSetAlignment(piece[i], BYTES_PIECE);
  }
  for (int i = 0; i < BYTES_WORDS; i++) {
    LLVMValueRef line = entry_add(entry, bytes->first[shape->row], column[i]);
    LLVMValueRef place = entry_add(entry, bytes->first[shape->column], along[i]), is_inside = NULL;
    if (lines % bytes->tile) is_inside = entry_less(entry, line, entry_const(entry, lines));
    if (length % bytes->tile) is_inside = entry_and(entry, is_inside, entry_less(entry, place, entry_const(entry, length)));
    LLVMBasicBlockRef after = entry_begin_if(entry, is_inside);
    LLVMValueRef at = entry_add(entry, place, entry_mul(entry, line, bytes->to[shape->row]));
    LLVMValueRef address = emit_at(&entry->emitter, entry->job->module->i8, entry->emitter.pointer[1], entry_add(entry, bytes->base[1], at));
    LLVMSetAlignment(LLVMBuildStore(entry->b, piece[i], address), BYTES_PIECE);
    entry_end_if(entry, after);
  }
}

bool nvptx_transpose_bytes(Job *job) {
  if (module_leaves_out(job->module, "transpose_tiles")) return false;
  Bytes *bytes = ARENA_NEW(job->scratch, Bytes);
  if (!find_moved_bytes(bytes, job)) return false;
  open_bytes(bytes, job);
  load_moved_bytes(bytes);
  entry_barrier(&bytes->entry);
  store_moved_bytes(bytes);
  entry_close(&bytes->entry, job->name, bytes_blocks(bytes), 1, 1);
  return true;
}
