/* fake_queue: what a stream, an event and a graph are inside the fake. */
#ifndef FT_TEST_FAKE_QUEUE_H
#define FT_TEST_FAKE_QUEUE_H
#include "fake.h"
#include <pthread.h>

typedef struct CudaGraphNodeBody {
  FakeOp op;
  struct CudaGraphNodeBody **after;
  size_t after_count;
  int index;
} FakeNode;

struct CudaGraphBody {
  FakeNode **node;
  int count, references; /* its maker's and its execs' */
};

struct CudaGraphExecBody {
  CudaGraph graph;
  int pending; /* launches enqueued and not run */
};

struct CudaStreamBody {
  CudaContext context; /* it was made in */
  FakeOp *op;
  int count, done, capacity;
  CudaGraph capture; /* NULL: not capturing */
  pthread_t capturer;
  bool is_member;  /* of a capture that another stream began, by waiting for an event of it */
  long capture_id;
  bool is_spoiled; /* something forbidden was done meanwhile */
  FakeNode **wait;   /* what the next captured node depends on */
  size_t wait_count;
  bool is_running; /* against waits in a circle, */
  pthread_t runner; /* … which are of one thread */
  bool is_slow;    /* moves only when somebody waits for it */
  struct CudaStreamBody *next;
};

struct CudaEventBody {
  unsigned flags;
  long recorded, done; /* generations */
  CudaStream stream;   /* of the last record */
  long launches;       /* graph launches before that */
  double time;         /* when it was done */
  long capture_id;     /* recorded while capturing: 0: not */
  FakeNode **node;     /* … behind these */
  size_t node_count;
};
void fake_move_all(void);
extern CudaStream fake_streams;
extern long fake_pending; /* graphs launched and not run */
/* An event in a capture, and what waits for it, which thereby is part of the capture. */
void fake_capture_record(CudaStream stream, CudaEvent event);
bool fake_capture_wait(CudaStream stream, CudaEvent event); /* false: it is of no capture */
/* Have all streams that the capture of this one has met come back to it? They are let go. */
bool fake_capture_gather(CudaStream stream);
void fake_graph_count(CudaGraph graph); /* its collectives */
/* Does this thread capture a stream? Then all its captures are spoiled, and stderr says by what. */
bool fake_capture_refuses(const char *call);
#endif
