/* Qrita: exact top-k, top-p and min-p filtering and sampling of logits. Made by cbindgen of crates/capi: do not edit.
 *
 * Initialise a QritaParams and a QritaOutputs by their functions, set what differs, and call. Functions with a QritaCode return
 * QRITA_CODE_OK or leave all memory of the caller's as it was; qrita_message says what was wrong. */

#ifndef QRITA_H
#define QRITA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 The version of this header: of functions, structs and constants. A library that has another refuses the structs of this one.
 */
#define QRITA_ABI 1

/*
 `QritaLogits.dtype`: IEEE single precision.
 */
#define QRITA_F32 0

/*
 `QritaLogits.dtype`: IEEE half precision.
 */
#define QRITA_F16 1

/*
 `QritaLogits.dtype`: the upper half of single precision.
 */
#define QRITA_BF16 2

/*
 `QritaParams.ties`: of equal logits a cut keeps those with the lowest ids, as a stable sort does.
 */
#define QRITA_LOWEST_ID 0

/*
 `QritaParams.ties`: a cut keeps all that equal the last one kept.
 */
#define QRITA_KEEP_ALL 1

/*
 `QritaParams.order`: top-p is over the mass that top-k left.
 */
#define QRITA_TOP_K_THEN_TOP_P 0

/*
 `QritaParams.order`: top-p is over the mass before top-k; both cuts hold.
 */
#define QRITA_JOINT 1

/*
 A token or a rank that a row does not have: it has no candidate.
 */
#define QRITA_NO_TOKEN 4294967295

/*
 A bit of a row's status: an allowed logit is NaN, and counts as minus infinity.
 */
#define QRITA_NAN 1

/*
 A bit of a row's status: an allowed logit is plus infinity.
 */
#define QRITA_POS_INF 2

/*
 A bit of a row's status: it has no candidate.
 */
#define QRITA_EMPTY 4

/*
 A bit of a row's status: it keeps more tokens than there is room for candidates.
 */
#define QRITA_OVERFLOW 8

/*
 What came of a call. Any other code than `QRITA_CODE_OK` means that nothing was written or launched; `qrita_message` says why.
 */
enum QritaCode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   It is done, or on CUDA launched.
   */
  QRITA_CODE_OK = 0,
  /*
   A parameter has a value outside its range.
   */
  QRITA_CODE_PARAM = 1,
  /*
   Memory is too short.
   */
  QRITA_CODE_LENGTH = 2,
  /*
   The shape of the logits, or an alignment, is none that there may be.
   */
  QRITA_CODE_SHAPE = 3,
  /*
   The build, or the backend, has no such thing.
   */
  QRITA_CODE_UNSUPPORTED = 4,
  /*
   The device, its driver or its runtime failed, or is not there.
   */
  QRITA_CODE_DEVICE = 5,
  /*
   A pointer is null, or a text is no UTF-8, where it must not be.
   */
  QRITA_CODE_POINTER = 6,
  /*
   A struct is of another ABI than the library's, or was not initialised.
   */
  QRITA_CODE_ABI = 7,
  /*
   A fault of the library's: it panicked. What the call was to write may have been written in part.
   */
  QRITA_CODE_PANIC = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum QritaCode QritaCode;
#else
typedef int32_t QritaCode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A sampler of logits of one dtype in the memory of one CUDA device. It holds compiled kernels and no memory of the device; any
 number of threads may launch with it.
 */
typedef struct QritaCuda QritaCuda;

/*
 A backend, its threads and its scratch memory, for logits in host memory. One thread at a time may call with it; another
 sampler gives the same bits.
 */
typedef struct QritaSampler QritaSampler;

/*
 The parameters of a call: one value for all rows and, where the array of the same name is not null, one a row instead.
 */
typedef struct QritaParams {
  /*
   `QRITA_ABI`, as `qrita_params_init` writes it.
   */
  uint32_t abi;
  /*
   How many tokens to draw from each row, with replacement: at least 1.
   */
  uint32_t draws;
  /*
   `QRITA_LOWEST_ID` or `QRITA_KEEP_ALL`.
   */
  uint32_t ties;
  /*
   `QRITA_TOP_K_THEN_TOP_P` or `QRITA_JOINT`.
   */
  uint32_t order;
  /*
   Divides the distances from the row's maximum: finite, at least 0; 0 is greedy.
   */
  float temperature;
  /*
   How many tokens to keep at most; 0 is off.
   */
  uint32_t top_k;
  /*
   The share of the mass to keep: at least 0; 1 and more is off.
   */
  float top_p;
  /*
   The least weight to keep, relative to the maximum's: 0 to 1; 0 is off.
   */
  float min_p;
  /*
   The key of the row's random bits.
   */
  uint64_t seed;
  /*
   The row's place in its own sequence: the counter of its random bits.
   */
  uint64_t position;
  /*
   Tells apart independent uses of one seed.
   */
  uint32_t stream;
  /*
   One temperature a row, or null.
   */
  const float *temperatures;
  /*
   One top-k a row, or null.
   */
  const uint32_t *top_ks;
  /*
   One top-p a row, or null.
   */
  const float *top_ps;
  /*
   One min-p a row, or null.
   */
  const float *min_ps;
  /*
   One seed a row, or null.
   */
  const uint64_t *seeds;
  /*
   One position a row, or null.
   */
  const uint64_t *positions;
  /*
   One stream a row, or null.
   */
  const uint32_t *streams;
} QritaParams;

/*
 The outputs of a call: any combination; what is null is not computed. One element a row, of the drawn tokens
 `QritaParams.draws` a row.
 */
typedef struct QritaOutputs {
  /*
   `QRITA_ABI`, as `qrita_outputs_init` writes it.
   */
  uint32_t abi;
  /*
   Not 0: logits that are not kept become minus infinity, in place.
   */
  uint32_t mask;
  /*
   Bits of a row's status.
   */
  uint32_t *status;
  /*
   How many tokens the row keeps.
   */
  uint32_t *kept;
  /*
   The tokens drawn.
   */
  uint32_t *token;
  /*
   Their log-probabilities among the kept tokens.
   */
  float *logprob;
  /*
   Their log-probabilities in the whole row, before the filters.
   */
  float *raw_logprob;
  /*
   How many tokens precede each in the order.
   */
  uint32_t *rank;
  /*
   The probability of every token among the kept, `vocab` a row; 0 of what is not kept.
   */
  float *probabilities;
  /*
   Room for so many kept tokens a row, in order, in the three arrays that follow. A row that keeps more gets `QRITA_OVERFLOW`.
   */
  uint32_t capacity;
  /*
   Their ids. Null: no candidates are asked for.
   */
  uint32_t *candidate_ids;
  /*
   Their logits. Not null where ids are not.
   */
  float *candidate_logits;
  /*
   Their log-probabilities among the kept tokens. Not null where ids are not.
   */
  float *candidate_logprobs;
  /*
   Room for so many first candidates of the whole row a row, at most 1024, in the two arrays that follow.
   */
  uint32_t top;
  /*
   Their ids, `QRITA_NO_TOKEN` where there are no more. Null: they are not asked for.
   */
  uint32_t *top_ids;
  /*
   Their log-probabilities in the whole row. Not null where ids are not.
   */
  float *top_logprobs;
} QritaOutputs;

/*
 Rows of logits: `rows` of `vocab` logits, `stride` elements from one row's first to the next one's.
 */
typedef struct QritaLogits {
  /*
   The first logit, aligned as one logit is. It is written to only where `QritaOutputs.mask` asks for that.
   */
  void *data;
  /*
   `QRITA_F32`, `QRITA_F16` or `QRITA_BF16`.
   */
  uint32_t dtype;
  /*
   How many rows; 0 is nothing to do.
   */
  size_t rows;
  /*
   Logits of a row: 1 to 2097152.
   */
  size_t vocab;
  /*
   At least `vocab`.
   */
  size_t stride;
} QritaLogits;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What was wrong with the last call of this thread that failed: UTF-8, valid until the next one fails; empty before. It names
 the parameter, its row and its value.
 */
const char *qrita_message(void);

/*
 The ABI of this library: what it takes is of a header with this `QRITA_ABI`.
 */
uint32_t qrita_abi(void);

/*
 Writes parameters that filter nothing and draw one token, at temperature 1 and seed 0.

 # Safety
 `params` is null, which is refused, or has room for the struct.
 */
QritaCode qrita_params_init(struct QritaParams *params);

/*
 Writes outputs that ask for nothing.

 # Safety
 `outputs` is null, which is refused, or has room for the struct.
 */
QritaCode qrita_outputs_init(struct QritaOutputs *outputs);

/*
 Makes a sampler: `backend` is `auto`, `cpu` or `cuda`; null is `auto`, which is CUDA where that can be used, else the CPU.
 `threads` are those of the CPU backend: 0 is all cores. The sampler goes to `sampler`, and back by `qrita_destroy`.

 # Safety
 `backend` is null or ends with a zero byte; `sampler` is null, which is refused, or has room for a pointer.
 */
QritaCode qrita_create(const char *backend,
                       uint32_t threads,
                       struct QritaSampler **sampler);

/*
 Ends a sampler; null is none.

 # Safety
 `sampler` is null, or was made by `qrita_create`, is in no call and is not used again.
 */
QritaCode qrita_destroy(struct QritaSampler *sampler);

/*
 What a sampler runs on, for people: UTF-8, as long as the sampler lives. Null for null.

 # Safety
 `sampler` is null or lives.
 */
const char *qrita_description(const struct QritaSampler *sampler);

/*
 Filters and samples rows of logits in host memory: every output that is asked for, among them the mask in place. Returns when
 it is done.

 # Safety
 `sampler` lives and is in no other call. Logits, arrays of parameters and outputs have the elements that their structs say;
 outputs, and logits that are to be masked, overlap nothing else.
 */
QritaCode qrita_run(struct QritaSampler *sampler,
                    const struct QritaLogits *logits,
                    const struct QritaParams *params,
                    const struct QritaOutputs *outputs);

/*
 Makes a sampler of logits of this dtype on this device, which counts from 0, in its primary context: the one of the CUDA
 runtime, and of torch. Kernels are compiled here, or taken from the cache: it may take seconds. The sampler goes to `sampler`,
 and back by `qrita_cuda_destroy`.

 # Safety
 `sampler` is null, which is refused, or has room for a pointer.
 */
QritaCode qrita_cuda_create(uint32_t device,
                            uint32_t dtype,
                            struct QritaCuda **sampler);

/*
 Ends a sampler; null is none. What it launched goes on.

 # Safety
 `sampler` is null, or was made by `qrita_cuda_create`, is in no call and is not used again.
 */
QritaCode qrita_cuda_destroy(struct QritaCuda *sampler);

/*
 The bytes of device memory that a launch of this shape works in. They do not fall with `rows` or `vocab`: memory for the largest
 batch serves all. It is zeroed once, when it is allocated, aligned to 16 bytes, and for one launch at a time.

 # Safety
 `sampler` is null, which is refused, or lives; `bytes` is null, which is refused, or has room for a number.
 */
QritaCode qrita_cuda_workspace_bytes(const struct QritaCuda *sampler,
                                     size_t rows,
                                     size_t vocab,
                                     size_t *bytes);

/*
 The bytes of a row's parameters as a launch reads them: see `qrita_cuda_row_args`. 0 in a build without CUDA.
 */
size_t qrita_cuda_row_args_bytes(void);

/*
 Checks the parameters of row `row` and writes them as a launch reads them: `qrita_cuda_row_args_bytes` bytes of host memory. An
 array with one of these a row, copied to device memory, gives rows parameters of their own, and lets them change between
 replays of a CUDA graph.

 # Safety
 `sampler` is null, which is refused, or lives. The arrays of `params` have more than `row` elements, in host memory.
 `row_args` is null, which is refused, or has room.
 */
QritaCode qrita_cuda_row_args(const struct QritaCuda *sampler,
                              const struct QritaParams *params,
                              size_t row,
                              size_t vocab,
                              void *row_args);

/*
 Launches on a stream, and returns before it is done: neither allocates, waits nor compiles, and a stream that captures a CUDA
 graph captures it. `stream` is a `CUstream`, which a `cudaStream_t` is too; null is the default stream.

 The parameters are those of `params` for all rows, whose arrays must be null; or, where `row_args` is not null, one
 `qrita_cuda_row_args` a row at that address of device memory, aligned to 8 bytes, and of `params` the draws alone.

 # Safety
 `sampler` is null, which is refused, or lives. Until the launch is done: all addresses in `logits` and `outputs`, and `row_args`
 and `workspace`, are of the device's memory with as many elements as their structs say; outputs, workspace and logits that are
 to be masked are nobody else's; the stream lives. The workspace was zeroed once, and launches alone have written to it since.
 */
QritaCode qrita_cuda_launch(const struct QritaCuda *sampler,
                            void *stream,
                            const struct QritaLogits *logits,
                            const struct QritaParams *params,
                            const void *row_args,
                            const struct QritaOutputs *outputs,
                            void *workspace,
                            size_t workspace_bytes);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QRITA_H */
