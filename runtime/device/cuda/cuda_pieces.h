/* cuda_pieces: a text of PTX in pieces, each with some of its kernels and all that stands between kernels, which the
 * driver compiles side by side. Which kernel is in which piece depends on the text alone, so that the driver's cache knows
 * the pieces again. */
#ifndef FT_RUNTIME_DEVICE_CUDA_CUDA_PIECES_H
#define FT_RUNTIME_DEVICE_CUDA_CUDA_PIECES_H
#include "base/arena.h"
#include <stddef.h>

/* CUDA_PIECE_BYTES: of kernels' text, if a piece is to be worth a module of its own. */
enum { CUDA_PIECES = 8, CUDA_PIECE_BYTES = 48 << 10 };

/* Cuts `ptx` into at most `most` texts (1 to CUDA_PIECES) of about the same size, each with some `least` bytes of kernels or
 * more, in piece[], of the arena. Returns their number; 0: it stays whole, since it is small, or has variables or functions that
 * kernels share. A kernel begins with .entry at the beginning of a line, before which may be .visible or
 * .weak, and ends with the line that closes its braces. */
int cuda_pieces_cut(Arena *arena, const char *ptx, size_t least, int most, char *piece[CUDA_PIECES]);
#endif
