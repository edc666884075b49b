// The C interface of Fulcrum's libtorch extension: what gotorch lacks.
//
// Every function that can fail returns NULL, or a message that the caller frees with
// fc_free_string; no C++ exception crosses this border. A Tensor is a heap-allocated at::Tensor,
// the same handle that gotorch uses, freed with fc_free. Shapes in comments are PyTorch's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *Generator;

// dtypes: the numbers of c10::ScalarType (1 = int8 … 4 = int64, 5 = half, 6 = float, 7 = double, 11 = bool, 15 = bfloat16).

// --- memory, data in and out
void fc_free_string(const char *s);
void fc_free(Tensor *tensors, int64_t n);
const char *fc_from_data(const void *data, int8_t dtype, const int64_t *shape, int64_t dims, Tensor *out);  // copies
const char *fc_from_static(void *data, int8_t dtype, const int64_t *shape, int64_t dims, Tensor *out);  // does not copy: data outlives out
const char *fc_copy_out(Tensor x, void *data, int64_t bytes);  // device → host, contiguous; waits for the device
const char *fc_pack(Tensor *xs, int64_t n, Tensor *out);  // the bytes of xs, row-major, one after another [bytes] uint8 on their device
const char *fc_full(const int64_t *shape, int64_t dims, double value, int8_t dtype, Tensor like, Tensor *out);
const char *fc_copy_(Tensor dst, Tensor src);
const char *fc_add_(Tensor dst, Tensor x);
const char *fc_to_like(Tensor x, Tensor like, Tensor *out);  // x on the device of like, the same memory when it is there
void fc_info(Tensor x, int64_t *dims, int64_t *shape8, int8_t *dtype, bool *requires_grad);

// --- elementwise
const char *fc_unary(const char *op, Tensor x, Tensor *out);
const char *fc_add(Tensor a, Tensor b, Tensor *out);
const char *fc_sub(Tensor a, Tensor b, Tensor *out);
const char *fc_add_scalar(Tensor x, double s, Tensor *out);
const char *fc_mul_scalar(Tensor x, double s, Tensor *out);
const char *fc_clamp(Tensor x, double lo, double hi, Tensor *out);  // NaN bound = none
const char *fc_minimum(Tensor a, Tensor b, Tensor *out);
const char *fc_maximum(Tensor a, Tensor b, Tensor *out);
const char *fc_compare(const char *op, Tensor x, double s, Tensor *out);  // bool tensor
const char *fc_where(Tensor cond, Tensor a, Tensor b, Tensor *out);
const char *fc_masked_fill(Tensor x, Tensor mask, double value, Tensor *out);
const char *fc_cast(Tensor x, int8_t dtype, Tensor *out);
const char *fc_to_device(Tensor x, const char *device, Tensor *out);

// --- products
const char *fc_matmul(Tensor a, Tensor b, Tensor *out);
const char *fc_linear(Tensor x, Tensor weight, Tensor bias_or_null, bool transposed, Tensor *out);
const char *fc_baddbmm(Tensor add, Tensor a, Tensor b, Tensor *out);

// --- reductions
const char *fc_sum(Tensor x, const int64_t *dims, int64_t n, bool keepdim, Tensor *out);
const char *fc_mean(Tensor x, const int64_t *dims, int64_t n, bool keepdim, Tensor *out);
const char *fc_logsumexp(Tensor x, int64_t dim, bool keepdim, Tensor *out);
const char *fc_softmax(Tensor x, int64_t dim, Tensor *out);
const char *fc_log_softmax(Tensor x, int64_t dim, Tensor *out);
const char *fc_argmax(Tensor x, int64_t dim, Tensor *out);  // first maximum on ties (CPU)
const char *fc_topk(Tensor x, int64_t k, int64_t dim, Tensor *values, Tensor *indices);
const char *fc_layer_norm(Tensor x, Tensor weight, Tensor bias, double eps, Tensor *out);  // over the last dim
const char *fc_normalize(Tensor x, double eps, Tensor *out);  // x / max(|x|₂, eps) over the last dim
const char *fc_all_finite(Tensor x, bool *out);
const char *fc_sum_squares(Tensor x, Tensor *out);  // Σ x² [1] in float64 where x lies, the same for any thread count

// --- rows: fused passes over the last dimension (rows.cc)
const char *fc_pick_logp(Tensor logits, Tensor actions, double taken, Tensor ref_or_null, Tensor *logp, Tensor *entropy, Tensor *kl);

// --- transformers (transformer.cc, attend.cc, linear.cc, vocabulary.cc): rows are packed, N rows of all sequences without padding
const char *fc_rms_norm(Tensor x, Tensor weight, double eps, Tensor *out);  // over the last dim, statistics in float32
const char *fc_add_rms_norm(Tensor x, Tensor delta, Tensor weight, double eps, Tensor *total, Tensor *out);
const char *fc_swiglu(Tensor gate, Tensor up, Tensor *out);  // silu(gate)·up
const char *fc_rope(Tensor x, Tensor cos, Tensor sin, Tensor *out);  // x [N, H, D], cos and sin [N, D/2] float32
const char *fc_attend(Tensor q, Tensor k, Tensor v, const int64_t *spans, int64_t n, double scale, Tensor bias_or_null, int64_t zero, Tensor *out);  // spans [n, 7] as Go's Span
const char *fc_attend_decode(Tensor q, Tensor k, Tensor v, Tensor prefix_or_null, Tensor prefix_len_or_null, Tensor own, Tensor own_len, int64_t max_prefix,
                             int64_t max_own, bool fast, double scale, Tensor *out);  // as Go's DecodeSpans
const char *fc_lora_linear(Tensor x, Tensor weight, Tensor bias_or_null, Tensor a, Tensor b, double scale, Tensor *out);
const char *fc_token_logp(Tensor hidden, Tensor weight, Tensor targets, double temperature, Tensor *logp, Tensor *entropy);
const char *fc_token_kl(Tensor hidden, Tensor weight, Tensor ref_hidden, Tensor ref_weight, Tensor *out);
const char *fc_write_rows_at(Tensor dst, Tensor rows, Tensor src);

// --- indexing and shape
const char *fc_replace_rows(Tensor x, Tensor rows, Tensor src, Tensor *out);  // x with x[rows] = src
const char *fc_gather(Tensor x, int64_t dim, Tensor index, Tensor *out);
const char *fc_scatter_value(Tensor x, int64_t dim, Tensor index, double value, Tensor *out);
const char *fc_index_select(Tensor x, int64_t dim, Tensor index, Tensor *out);
const char *fc_embedding(Tensor table, Tensor index, Tensor *out);  // table[index], with a fast gradient
const char *fc_cat(Tensor *xs, int64_t n, int64_t dim, Tensor *out);
const char *fc_stack(Tensor *xs, int64_t n, int64_t dim, Tensor *out);
const char *fc_narrow(Tensor x, int64_t dim, int64_t start, int64_t length, Tensor *out);
const char *fc_split(Tensor x, int64_t dim, int64_t first, Tensor *a, Tensor *b);
const char *fc_reshape(Tensor x, const int64_t *shape, int64_t dims, Tensor *out);
const char *fc_expand(Tensor x, const int64_t *shape, int64_t dims, Tensor *out);  // -1 keeps
const char *fc_transpose(Tensor x, int64_t a, int64_t b, Tensor *out);
const char *fc_unsqueeze(Tensor x, int64_t dim, Tensor *out);
const char *fc_squeeze(Tensor x, int64_t dim, Tensor *out);
const char *fc_contiguous(Tensor x, Tensor *out);

// --- autograd
bool fc_set_grad_enabled(bool on);  // returns the former state; per thread
const char *fc_detach(Tensor x, Tensor *out);
const char *fc_backward(Tensor x, Tensor grad_or_null, bool keep_graph);  // grad: of x's shape; without it x is a scalar
bool fc_grad_enabled(void);
bool fc_is_leaf(Tensor x);
bool fc_has_grad(Tensor x);
const char *fc_alias(Tensor x, Tensor *out);  // another handle of the same tensor
int64_t fc_use_count(Tensor x);  // handles and graph nodes that hold x
const char *fc_require_grad(Tensor x);
const char *fc_grad(Tensor x, Tensor *out);
const char *fc_param_view(Tensor flat, Tensor flat_grad, int64_t offset, const int64_t *shape, int64_t dims, Tensor *out);
const char *fc_param_part(Tensor param, int64_t dim, int64_t start, int64_t length, Tensor *out);

// --- optimiser: one fused pass over flat float32 buffers [N]
// g' = grad·grad_scale; AdamW (Loshchilov & Hutter 2019) with bias correction for step (1-based).
// clear: the gradient is set to zero after it was read.
// lr, weight_decay are per-element scales when lr_scale/decay_mask are given (may be NULL).
// With squares (Σ grad² [1] float64) grad_scale is the largest norm instead (0: none), and the factor min(1, grad_scale/(norm + 1e-6))
// is computed from it. guard: nothing changes where squares or one of losses [n] (may be NULL) is not finite.
const char *fc_adamw(Tensor param, Tensor grad, Tensor m, Tensor v, Tensor lr_scale, Tensor decay_mask, Tensor squares_or_null,
                     Tensor losses_or_null, bool guard, double grad_scale, double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, bool clear);

// --- random numbers
const char *fc_generator(uint64_t seed, const char *device, Generator *out);
void fc_generator_free(Generator g);
const char *fc_generator_seed(Generator g, uint64_t seed);
const char *fc_uniform_(Tensor x, double lo, double hi, Generator g);
const char *fc_normal_(Tensor x, double mean, double std, Generator g);

// --- threads, devices
void fc_keep_freed_memory(void);
void fc_set_num_threads(int n);
int fc_get_num_threads(void);
void fc_set_deterministic(bool on);
bool fc_cuda_available(void);
int fc_cuda_device_count(void);
const char *fc_cuda_synchronize(void);
const char *fc_cuda_describe(int device, const char **out);  // name, capability, multiprocessors, runtime, driver, bf16, flash, NVRTC; tabs between
// gloo (gloo.cc): tensors between the processes of a run; on a device they go through the host's memory
const char *fc_gloo_store(const char *host, int *port, bool keeps, void **out);
const char *fc_gloo_join(void *of, const char *address, int rank, int size);
const char *fc_gloo_send(void *of, Tensor x, int to, int tag);  // begins
const char *fc_gloo_receive(void *of, Tensor x, int from, int tag);
const char *fc_gloo_wait(void *of, int operations);  // the oldest
const char *fc_gloo_abort(void *of);
// a gradient [n] whose parts are sent while the backward pass makes it
const char *fc_sender(void *of, Tensor gradient, void **out);
const char *fc_sender_watch(void *sender, Tensor leaf, int64_t from, int64_t to);  // where its gradient lies
const char *fc_sender_part(void *sender, int64_t from, int64_t to, int rank, int tag);
const char *fc_sender_later(void *sender, Tensor sum);  // is added to what is sent
const char *fc_sender_start(void *sender);
const char *fc_sender_end(void *sender, int *early, int *sent, bool *late);  // late: what was sent was not finished
const char *fc_sender_free(void *sender);

// NCCL (nccl.cc): a communicator of the processes of a run; its operations wait in the tensors' stream
const char *fc_nccl_version(int *out);  // 22105: 2.21.5
const char *fc_nccl_id(char *id128);
const char *fc_nccl_join(const char *id128, int rank, int size, bool cuda, int gpu, void **out);  // the CPU: for tests
const char *fc_nccl_send(void *comm, Tensor x, int to);
const char *fc_nccl_receive(void *comm, Tensor x, int from);
const char *fc_nccl_group(bool begins);  // operations in between are under way at once
const char *fc_nccl_state(void *comm);
const char *fc_nccl_abort(void *comm);
const char *fc_cuda_memory(int device, int64_t *out, bool reset_peak);  // bytes [6]: free, total, allocated, its peak, reserved, its peak

#ifdef __cplusplus
}
#endif
