// CUDA graphs (graph.go): a sequence of operations, recorded once and launched again as one. Without CUDA every function fails.
#pragma once

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *Side;
typedef void *Graph;
typedef void *Mark;

const char *fc_side_begin(Tensor like, Side *out);  // a stream of its own becomes the thread's current one on the device of like
const char *fc_side_end(Side side);                 // the former one, which waits for what was launched; frees side
const char *fc_graph_begin(Graph share_or_null, Graph *out);  // records from now on, in the memory of another graph where given
const char *fc_graph_end(Graph graph);
const char *fc_graph_replay(Graph graph);
void fc_graph_free(Graph graph);
const char *fc_mark(Tensor like, Mark *out);  // in the queue of the current stream of the device of like
const char *fc_mark_wait(Mark mark);          // until all that was launched before it is done; frees mark

#ifdef __cplusplus
}
#endif
