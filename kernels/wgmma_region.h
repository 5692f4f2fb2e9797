/* wgmma_region: convolutions by wgmma whose rows read neighbouring places of images: forward, and the gradient of the
 * input, with a stride of 1, in NHWC, with channels in multiples of 64. Part of wgmma_ptx.h.
 *
 * The rows of a tile follow each other in the images, so for all places of the window together they read one region of
 * the input, which is little larger than what they read for one place. A block loads this region of 64 channels once,
 * and reads it for each place of the window, where a panel for each place would come from L2 again.
 *
 * Images are taken as if they lay in memory with what surrounds them: `padded_width` places in a line, `padded_height`
 * lines in an image, one image behind the other. There a row of the product has a position, and place (ky, kx) of the
 * window is a constant distance from it, for all rows. The region is all positions from the first of its first row to the
 * last of its last row, one row of 128 bytes each; what lies outside of an image is zeros. Pieces of 16 bytes are exchanged as
 * in panels, not by the number of the row in the region, but by what it would be without the columns around images: rows
 * of the product that follow each other differ in it where a line ends, too, so that reading has no bank conflicts.
 *
 * A distance is any number of rows, where descriptors of wgmma want multiples of eight. So each warp reads the fragments
 * of its 16 rows by ldmatrix, whose rows may lie anywhere, and wgmma takes them from registers. A half of a panel's steps
 * is read while the other half is multiplied. Weights come in panels as ever; the order of k is by 64 channels, then places of
 * the window, then channels. The region of the next 64 channels is loaded in parts beside the panels of these. What a row of the region
 * is in memory is found once, and kept in shared memory. */
#ifndef FT_KERNELS_WGMMA_REGION_H
#define FT_KERNELS_WGMMA_REGION_H

int gemm_region(void);  /* rows of a region at most; 0: panels instead */
int gemm_regions(void); /* of them in shared memory, in front of the panels: 1, or 2 if there are several; */
int gemm_lines(void);   /* where in it a word for each row lies, behind the panels: bytes */
enum { HALF = PANEL_DEPTHS / 2 };
typedef struct {
  unsigned at[HALF][MAX_HIGH][4];
} Fragments;
/* gemm_wgmma of a half of a panel, with a from registers. */
void gemm_wgmma_kept(Total *sum, const Fragments *a, const uint64_t *b, int adds);

/* ── positions ───────────────────────────────────────────────────────────────────────────────── */

ALWAYS int is_forward(void) { return gemm_kind() == 1; }
ALWAYS int read_channels(void) { return is_forward() ? gemm_in_channels() : gemm_out_channels(); }
ALWAYS int read_height(void) { return is_forward() ? gemm_in_height() : gemm_out_height(); }
ALWAYS int read_width(void) { return is_forward() ? gemm_in_width() : gemm_out_width(); }
ALWAYS int made_height(void) { return is_forward() ? gemm_out_height() : gemm_in_height(); }
ALWAYS int made_width(void) { return is_forward() ? gemm_out_width() : gemm_in_width(); }
ALWAYS int more_lines(void) { return (gemm_kernel_height() - 1) * gemm_dilation_height(); }
ALWAYS int more_columns(void) { return (gemm_kernel_width() - 1) * gemm_dilation_width(); }
ALWAYS int padded_height(void) { return made_height() + more_lines(); }
ALWAYS int padded_width(void) { return made_width() + more_columns(); }

ALWAYS int position_of(int row) {
  Place place = image_place(row, made_height(), made_width());
  return (place.image * padded_height() + place.y) * padded_width() + place.x;
}
/* From the position of a row to what place `window` of the window reads for it, in lines of so many places. */
ALWAYS int distance_in(int window, int width) {
  int line = (int)((uint32_t)window / (uint32_t)gemm_kernel_width());
  int down = line * gemm_dilation_height(), across = (window - line * gemm_kernel_width()) * gemm_dilation_width();
  return is_forward() ? down * width + across : (more_lines() - down) * width + more_columns() - across;
}
ALWAYS int distance_of(int window) { return distance_in(window, padded_width()); }
/* Which swizzle the row of the region has that place `window` of the window reads for a row of the product. */
ALWAYS int swizzle_of(int row, int window) { return (row + distance_in(window, made_width())) & 7; }
/* Eight times the number of the place that is read at a position, or -8 outside of the images, and the swizzle of its row. */
ALWAYS int place_at(int position) {
  uint32_t line = (uint32_t)position / (uint32_t)padded_width(), image = line / (uint32_t)padded_height();
  int y = (int)(line - image * (uint32_t)padded_height()) - (is_forward() ? gemm_pad_top() : more_lines() - gemm_pad_top());
  int x = (int)((uint32_t)position - line * (uint32_t)padded_width()) -
          (is_forward() ? gemm_pad_left() : more_columns() - gemm_pad_left());
  int is_inside = (unsigned)y < (unsigned)read_height() && (unsigned)x < (unsigned)read_width();
  uint32_t column = (uint32_t)position - line * (uint32_t)padded_width(), lines = line - image * (uint32_t)more_lines();
  int place = is_inside ? ((int)image * read_height() + y) * read_width() + x : -1;
  return place * 8 | (int)((lines * (uint32_t)made_width() + column) & 7);
}

/* ── loading ─────────────────────────────────────────────────────────────────────────────────── */

/* The region of a tile: its first position, and how many there are; and of this thread, what it loads of each row. */
typedef struct {
  int first, count;
  SHARED int *places; /* of each row */
  const GLOBAL ELEMENT *from; /* this thread's piece of a place */
} Region;

/* All threads; a barrier of the block follows before anything is loaded. */
ALWAYS Region open_region(void *const *args, SHARED char *memory, const Where *w) {
  int end = w->row0 + gemm_tile_m() < gemm_m() ? w->row0 + gemm_tile_m() : gemm_m();
  int first = position_of(w->row0), channel = w->batch * read_channels() + w->thread % 8 * PIECE;
  Region region = {first, position_of(end - 1) - first + more_lines() * padded_width() + more_columns() + 1,
                   (SHARED int *)(memory + gemm_lines()), (const GLOBAL ELEMENT *)gemm_pointer_a(args) + channel};
#pragma clang loop unroll(disable)
  for (int row = w->thread; row < region.count; row += threads()) region.places[row] = place_at(first + row);
  return region;
}

/* Fragments of the next 64 channels are read before the last panel of these is multiplied, and copies are waited for
 * stages - 2 panels after they began, so many panels are left to start them at. */
ALWAYS int region_parts(void) { return gemm_kernel_height() * gemm_kernel_width() - gemm_stages() + 2; }

/* Eight threads load a row. */
ALWAYS void load_rows(const Region *region, int thread, int begin, int end, int block, Panel to) {
  int row = begin + thread / 8, stop = end < region->count ? end : region->count;
  Panel line = to + row * ROW;
#pragma clang loop unroll(disable)
  for (; row < stop; row += threads() / 8, line += threads() / 8 * ROW) {
    int word = region->places[row], at = word >> 3;
    __nvvm_cp_async_cg_shared_global_16(
        line + (thread % 8 ^ (word & 7)) * PIECE, (const GLOBAL char *)(region->from + ((int64_t)at * (gemm_groups() * read_channels()) + block * ROW)), at < 0 ? 0 : 16);
  }
}
ALWAYS void load_part(const Region *region, int thread, int part, int block, Panel to) {
  int line = threads() / 8, all = (gemm_region() + line - 1) / line, some = (all + region_parts() - 1) / region_parts() * line;
  load_rows(region, thread, part * some, part * some + some, block, to);
}

/* ── multiplying ─────────────────────────────────────────────────────────────────────────────── */

/* A lane's address of the first piece of a row of its fragments; the others differ in two bits. */
ALWAYS uint32_t lane_address(uint32_t region, int row, int swizzle, int lane) {
  return region + (uint32_t)row * 128 + (uint32_t)(swizzle ^ (lane / 16)) * 16;
}
/* Four 8 x 8 matrices of 16 bits: lane i names row i % 8 of matrix i / 8. */
ALWAYS void region_matrices(unsigned *four, uint32_t row) {
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                   : "r"(row)
                   : "memory");
}
ALWAYS void region_fragments(const uint32_t *row, int half, Fragments *out) {
#pragma clang loop unroll(full)
  for (int i = 0; i < gemm_micro_m() / 64; i++)
#pragma clang loop unroll(full)
    for (int s = 0; s < HALF; s++) region_matrices(out->at[s][i], row[i] ^ (uint32_t)((half * HALF + s) * 32));
}
ALWAYS void multiply_half(const Fragments *a, uint64_t b, int half, int adds, Total *sum) {
  uint64_t columns[HALF];
#pragma clang loop unroll(full)
  for (int s = 0; s < HALF; s++) columns[s] = b + further(half * HALF + s, gemm_b_deep());
  wgmma_begin();
  gemm_wgmma_kept(sum, a, columns, adds);
  wgmma_commit();
}

/* The panel of b from k on, in stage `stage` of those behind the regions. */
ALWAYS void load_weights(void *const *args, const Where *w, int k, uint32_t panels, int stage, uint32_t barriers) {
  int bytes = panel_size(gemm_tile_n(), gemm_b_deep()) * (int)sizeof(ELEMENT);
  load_operand(args, w, 0, k, (Panel)(uintptr_t)(panels + (uint32_t)(stage * bytes)),
               (Mbarrier)(uintptr_t)(barriers + (uint32_t)stage * 16));
}

ALWAYS void multiply_region(void *const *args, Panel memory, const Where *w, Total *sum) {
  int taps = gemm_kernel_height() * gemm_kernel_width(), stages = gemm_stages(), lane = w->thread % 32;
  int channels = read_channels(), count = channels / ROW * taps, at = 0, ahead = stages - 2, parity = 0;
  uint32_t base = (uint32_t)(uintptr_t)memory, bytes = (uint32_t)gemm_region() * 128;
  uint32_t panels = base + (uint32_t)gemm_regions() * bytes, barriers = base + (uint32_t)gemm_barriers();
  int panel = panel_size(gemm_tile_n(), gemm_b_deep()) * (int)sizeof(ELEMENT), own[MAX_HIGH], row[MAX_HIGH];
  uint32_t address[MAX_HIGH];
  Region region = open_region(args, (SHARED char *)memory, w);
#pragma clang loop unroll(full)
  for (int i = 0; i < gemm_micro_m() / 64; i++) {
    own[i] = w->row0 + group_row(w->thread) + i * 64 + w->thread / 32 % 4 * 16 + lane % 16;
    if (own[i] >= gemm_m()) own[i] = gemm_m() - 1;
    row[i] = position_of(own[i]) - region.first;
    address[i] = lane_address(base, row[i] + distance_of(0), swizzle_of(own[i], 0), lane);
  }
  if (gemm_b_mapped())
    open_full(memory, w->thread);
  else
    __nvvm_bar_sync(0);
  load_rows(&region, w->thread, 0, gemm_region(), 0, memory);
  int k = 0, from = 0; /* of the next panel of b: its k, and its place of the window */
#pragma clang loop unroll(disable)
  for (int t = 0; t < ahead; t++, from++, k += channels) {
    load_weights(args, w, k, panels, t, barriers);
    __nvvm_cp_async_commit_group();
  }
  async_wait(stages - 3);
  __nvvm_bar_sync(0);
  Fragments half[2];
  region_fragments(address, 0, &half[0]);
  int tap = 0, block = 0;
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    uint64_t right = describe((Panel)(uintptr_t)(panels + (uint32_t)(at * panel)), group_column(w->thread));
    async_wait(stages - 3);
    show_to_wgmma();
    if (gemm_b_mapped())
      mbarrier_wait((Mbarrier)(uintptr_t)(barriers + (uint32_t)at * 16), parity, gemm_wait(WAIT_FULL, at));
    __nvvm_bar_sync(0);
    multiply_half(&half[0], right, 0, t > 0, sum);
    wgmma_wait(1);
    region_fragments(address, 1, &half[1]);
    multiply_half(&half[1], right, 1, 1, sum);
    if (t + stages - 2 < count) load_weights(args, w, k, panels, ahead, barriers);
    if (gemm_regions() > 1 && tap < region_parts() && (block + 1) * ROW < channels)
      load_part(&region, w->thread, tap, block + 1, memory + (block + 1) % 2 * gemm_region() * ROW);
    __nvvm_cp_async_commit_group();
    wgmma_wait(1);
    from = from + 1 == taps ? 0 : from + 1;
    k += from ? channels : ROW - (taps - 1) * channels;
    tap = tap + 1 == taps ? 0 : tap + 1;
    block += !tap; /* behind the last panel its region, or the other one, is read once more, and not used */
    uint32_t next = base + (gemm_regions() > 1 && block % 2 ? bytes : 0);
#pragma clang loop unroll(full)
    for (int i = 0; i < gemm_micro_m() / 64; i++)
      address[i] = lane_address(next, row[i] + distance_of(tap), swizzle_of(own[i], tap), lane);
    region_fragments(address, 0, &half[0]);
    at = at + 1 == stages ? 0 : at + 1;
    parity ^= at == 0;
    ahead = ahead + 1 == stages ? 0 : ahead + 1;
  }
}
#endif
