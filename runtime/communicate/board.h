/* board: TCP connections of all ranks to rank 0, beside the engine, over which they say where they
 * are. Messages have a kind and up to BOARD_BYTES bytes, and are those of this build of ft: a token
 * that the engine brought says who belongs to the job. Nothing here waits for long for a rank that
 * does not read. */
#ifndef FT_RUNTIME_BOARD_H
#define FT_RUNTIME_BOARD_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BOARD_HOST = 64, BOARD_BYTES = 2048, BOARD_RING = 1024, BOARD_ADDRESSES = 16 };

/* What the engine brings to all ranks. */
typedef struct {
  uint8_t token[16];
  uint8_t host[BOARD_ADDRESSES][16]; /* IPv6, or IPv4 mapped into it */
  uint32_t scope[BOARD_ADDRESSES];
  uint16_t port;
  uint16_t count;
} BoardAddress;

typedef struct {
  BoardAddress address;
  int listening; /* rank 0's; -1 */
} Board;

/* A connection, and what of a message has come. */
typedef struct {
  int socket; /* -1: none */
  size_t count;
  char bytes[8 + BOARD_BYTES];
} BoardLink;

/* Rank 0: opens a port, and finds this machine's addresses. */
STATUS_CHECKED Status board_listen(Board *board);
void board_close(Board *board);
/* Others: connects within so many seconds. */
STATUS_CHECKED Status board_connect(const Board *board, int rank, const char *host, double seconds,
                                    BoardLink *out);
/* Rank 0: takes one who knows the token, if somebody is there; *rank is -1 if not. */
void board_accept(const Board *board, BoardLink *out, int *rank);
/* False: the connection is gone. */
bool board_send(BoardLink *link, int kind, const void *bytes, size_t count);
/* Nothing if the other side has not read for long. */
bool board_send_if_read(BoardLink *link, int kind, const void *bytes, size_t count);
/* Nothing if it would have to wait for the other side to read. */
bool board_send_if_room(BoardLink *link, int kind, const void *bytes, size_t count);
/* *kind is 0 if no whole message has come. False: the connection is gone. */
bool board_receive(BoardLink *link, int *kind, void *bytes, size_t *count);
void board_drop(BoardLink *link);
#endif
