// Backward passes that say where a number first stopped being finite (trace.go).
#pragma once

#include <stdbool.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

// fc_backward with every node's result looked at; *first, which fc_free_string frees, gets "name|node|shapes of
// its gradients" of the first node whose result is not finite while the gradient that reached it is, or NULL.
const char *fc_backward_traced(Tensor x, Tensor grad_or_null, bool keep_graph, const char **first);
const void *fc_graph_node(Tensor x);  // of the operation that made x, to recognise it; NULL without history

#ifdef __cplusplus
}
#endif
