/* The C interface of Slotwise's client: tables, lookups, pushes, rows by key. client.h is the C++ interface,
 * and documents what the calls mean; the Python client is made of this one.
 *
 *   slotwise_call* call = slotwise_connect(&address, 1, NULL, NULL);
 *   if (slotwise_call_wait(call, -1) != SLOTWISE_OK) puts(slotwise_call_message(call));
 *   slotwise_client* client = slotwise_call_client(call);
 *   slotwise_call_free(call);
 *
 *   slotwise_batch batch = {.table = "ads", .keys = keys, .keys_count = 2, .values = out, .values_count = 8};
 *   call = slotwise_lookup(client, &batch, 1, SLOTWISE_TRAIN, NULL, NULL, NULL);
 *
 * Every function that talks to a server starts a call and returns at once. A call ends once, with a code, and
 * its results can be read until it is freed. Arrays that a call was given must stay alive, and unchanged,
 * until the call has ended: after slotwise_call_wait said so, or in its callback. All texts are UTF-8 and end
 * with 0. Nothing here throws, and no signal handler is installed.
 *
 * Thread-safety: any number of threads may use one client and one queue. One thread at a time uses a call or
 * rows, but any thread may cancel a call. A forked child cannot use its parent's objects, and must not free
 * them.
 */
#ifndef SLOTWISE_SLOTWISE_H_
#define SLOTWISE_SLOTWISE_H_

/* Names are written as C's are. NOLINTBEGIN(readability-identifier-naming) */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLOTWISE_API __attribute__((visibility("default")))
#else
#define SLOTWISE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rises with every change after which a program that was compiled before could misbehave. */
#define SLOTWISE_ABI 7
SLOTWISE_API int32_t slotwise_abi(void);
/* Returns the version of Slotwise, for example "0.1.0". */
SLOTWISE_API const char* slotwise_version(void);

/* Says how a call ended, by gRPC's numbers. */
enum {
  SLOTWISE_RUNNING = -1, /* the call has not ended */
  SLOTWISE_OK = 0,
  SLOTWISE_CANCELLED = 1,
  SLOTWISE_INVALID_ARGUMENT = 3,
  SLOTWISE_DEADLINE_EXCEEDED = 4,
  SLOTWISE_NOT_FOUND = 5,
  SLOTWISE_ALREADY_EXISTS = 6,
  SLOTWISE_PERMISSION_DENIED = 7, /* the caller lacks the right */
  SLOTWISE_RESOURCE_EXHAUSTED = 8,
  SLOTWISE_FAILED_PRECONDITION = 9,
  SLOTWISE_INTERNAL = 13,
  SLOTWISE_UNAVAILABLE = 14,
  SLOTWISE_UNAUTHENTICATED = 16, /* the server does not know who calls */
  SLOTWISE_DATA_LOSS = 15 /* steps that the client saw acknowledged are gone, or a checkpoint is damaged */
};

/* The type that values and gradients have on the wire. In callers' arrays they are float32. */
enum { SLOTWISE_FLOAT32 = 0, SLOTWISE_FLOAT16 = 1, SLOTWISE_BFLOAT16 = 2 };

enum { SLOTWISE_TRAIN = 0, SLOTWISE_EVAL = 1 };

typedef struct slotwise_client slotwise_client;
typedef struct slotwise_call slotwise_call;
typedef struct slotwise_rows slotwise_rows;
typedef struct slotwise_queue slotwise_queue;

/* --- calls */

/* Called once, when a call has ended, from a thread of the client's, or from the thread that started the
 * call, perhaps before the function that started it has returned. It must not block. It may free the call. */
typedef void (*slotwise_done)(void* user, slotwise_call* call);

/* Says how a call differs from its client's options. All zeros are the same as no options. */
typedef struct slotwise_call_options {
  int64_t timeout_ms; /* 0: the client's timeout */
  int32_t has_data_type;
  int32_t data_type;  /* of lookups and pushes, if has_data_type is not 0; else the client's */
  slotwise_done done; /* may be null */
  void* user;
} slotwise_call_options;

/* Sets the trace of the calls that this thread starts from now on, as the W3C's Trace Context writes it in
 * the field traceparent; the server's log has the trace's id. Null, "" or an invalid text: no trace. The text
 * is copied. */
SLOTWISE_API void slotwise_set_traceparent(const char* traceparent);

/* Waits until the call has ended, at most `most_ms` (below 0: without limit), and returns its code or
 * SLOTWISE_RUNNING. */
SLOTWISE_API int32_t slotwise_call_wait(slotwise_call* call, int64_t most_ms);
/* Makes the call end soon, with SLOTWISE_CANCELLED, unless it has ended. A cancelled push may have been
 * applied. */
SLOTWISE_API void slotwise_call_cancel(slotwise_call* call);
/* Cancels the call if it runs, waits for its end, and frees it. Null is allowed. */
SLOTWISE_API void slotwise_call_free(slotwise_call* call);

/* Returns one sentence that says why a call that has ended failed, or "". */
SLOTWISE_API const char* slotwise_call_message(const slotwise_call* call);
/* For a call that has ended with SLOTWISE_RESOURCE_EXHAUSTED, returns after how many milliseconds the server,
 * which stayed busy until the timeout, has room again; 0 if it would refuse the same call again. */
SLOTWISE_API int64_t slotwise_call_retry_after_ms(const slotwise_call* call);
/* Returns why a call has failed, as a name of proto/slotwise/v1/errors.proto without REASON_, for example
 * "TABLE_FULL"; else "". A refusal without a reason, as an older server's, gets its code's first one. */
SLOTWISE_API const char* slotwise_call_reason(const slotwise_call* call);
/* Returns the reply to a call that has ended with SLOTWISE_OK, a message of proto/slotwise/v1/admin.proto in
 * protobuf's JSON with the fields' own names, or "". */
SLOTWISE_API const char* slotwise_call_json(const slotwise_call* call);
/* Returns the numbers of a call that has ended with SLOTWISE_OK, or none. */
SLOTWISE_API const uint64_t* slotwise_call_numbers(const slotwise_call* call, size_t* count);
/* Takes the client out of a call of slotwise_connect that has ended with SLOTWISE_OK. Returns null the second
 * time. */
SLOTWISE_API slotwise_client* slotwise_call_client(slotwise_call* call);

/* --- queues of calls that have ended, for callers whose callbacks cannot run in a thread of the client's */

/* Returns null if there is no memory. */
SLOTWISE_API slotwise_queue* slotwise_queue_new(void);
/* REQUIRES: no call that has not ended names the queue. */
SLOTWISE_API void slotwise_queue_free(slotwise_queue* queue);
/* Pass this function as a call's `done`, and the queue as its `user`. */
SLOTWISE_API void slotwise_queue_post(void* queue, slotwise_call* call);
/* Waits for a call that has ended, at most `most_ms` (below 0: without limit). Returns null if none came. */
SLOTWISE_API slotwise_call* slotwise_queue_take(slotwise_queue* queue, int64_t most_ms);

/* --- clients */

#define SLOTWISE_TRANSPORT_BEST 0 /* the fastest that the server has */
#define SLOTWISE_TRANSPORT_GRPC 1 /* by gRPC, as all other calls */
#define SLOTWISE_TRANSPORT_TCP 2  /* by sockets, wherever the server is */
#define SLOTWISE_TRANSPORT_SHM 3  /* by memory that is shared with a server on this host, or UNAVAILABLE */
#define SLOTWISE_TRANSPORT_GPU 4  /* like BEST; the memory of a server without a GPU may stand for a GPU's */
/* The transports' names in 0.1. */
#define SLOTWISE_DOOR_BEST SLOTWISE_TRANSPORT_BEST
#define SLOTWISE_DOOR_GRPC SLOTWISE_TRANSPORT_GRPC
#define SLOTWISE_DOOR_TCP SLOTWISE_TRANSPORT_TCP
#define SLOTWISE_DOOR_SHM SLOTWISE_TRANSPORT_SHM
#define SLOTWISE_DOOR_GPU SLOTWISE_TRANSPORT_GPU

/* Say how a client proves who it is, and whom it trusts to be the server (credentials.h). Null texts mean
 * none. */
typedef struct slotwise_credentials {
  const char* token_file;
  const char* ca_file;
  const char* certificate_file;
  const char* key_file;
  const char* server_name;
  int32_t insecure; /* if not 0, the token may travel unencrypted to other hosts */
} slotwise_credentials;

typedef struct slotwise_client_options {
  int64_t timeout_ms;        /* for connecting, and for calls that name none; 0: 30,000 */
  int32_t channels_per_rank; /* 0: 2 */
  int32_t threads;           /* the client's own, which read replies; 0: 2, or where there are more than 4
                                processors, as many as half of them, but no more than channels_per_rank */
  int32_t data_type;         /* on the wire, for calls that name none */
  union {
    int32_t transport; /* a SLOTWISE_TRANSPORT_... for lookups and pushes */
    int32_t door;      /* its name in 0.1 */
  };
  /* Called with a line whenever a request is sent again, from any thread; may be null. It must not block. */
  void (*log)(void* log_user, const char* line);
  void* log_user;
  /* Null: read from the environment: SLOTWISE_TOKEN_FILE, SLOTWISE_CA_FILE, SLOTWISE_CERTIFICATE_FILE,
   * SLOTWISE_KEY_FILE, SLOTWISE_SERVER_NAME, SLOTWISE_INSECURE. */
  const slotwise_credentials* credentials;
} slotwise_client_options;

/* Connects to the server that has a rank at one of `addresses`, host:port. */
SLOTWISE_API slotwise_call* slotwise_connect(const char* const* addresses, size_t count,
                                             const slotwise_client_options* options,
                                             const slotwise_call_options* call);
/* Ends all calls with SLOTWISE_FAILED_PRECONDITION, and waits until their callbacks have run. Later calls end
 * with the same code at once. Closing again does nothing. REQUIRES: not called from a callback. */
SLOTWISE_API void slotwise_client_close(slotwise_client* client);
/* Return the epoch and the id of the client's own session. They change if the server forgets the session
 * (client.h: Push). */
SLOTWISE_API uint64_t slotwise_client_epoch(slotwise_client* client);
SLOTWISE_API uint64_t slotwise_client_session(slotwise_client* client);
/* Closes the client and frees it. Null is allowed. REQUIRES: no other thread uses the client; calls and rows
 * of it may still be read. */
SLOTWISE_API void slotwise_client_free(slotwise_client* client);

/* --- the control path: tables, checkpoints, sessions, the server's ranks */

/* Calls a method of service Admin (proto/slotwise/v1/admin.proto) by its name, for example "DescribeTable".
 * `request` is the JSON of the method's request, as protobuf writes JSON, with either kind of field names;
 * the call's JSON is that of the reply. Only `rank` is asked, or any rank if it is below 0. A method that
 * waits until a checkpoint is written or read waits a day if `call` names no timeout. */
SLOTWISE_API slotwise_call* slotwise_ask(slotwise_client* client, const char* method, const char* request,
                                         int32_t rank, const slotwise_call_options* call);

/* The options of a table that fix the sizes of its batches' arrays. */
typedef struct slotwise_table {
  uint32_t dim;
  uint32_t slots;
  int32_t pools; /* 0 if its combiner is "none" */
} slotwise_table;

/* Returns 1 and writes the options of a table that the client has used or described; else returns 0. */
SLOTWISE_API int32_t slotwise_client_table(slotwise_client* client, const char* table, slotwise_table* known);
/* Makes the client forget a table's options; the client asks for them when they are next needed. */
SLOTWISE_API void slotwise_client_forget_table(slotwise_client* client, const char* table);

/* --- batches */

enum { SLOTWISE_UINT32 = 0, SLOTWISE_INT64 = 1 };

/* samples * slots bags of keys of one table: bag b owns keys[offsets[b]] up to keys[offsets[b + 1]]. */
typedef struct slotwise_batch {
  const char* table;
  const uint64_t* keys;
  size_t keys_count;
  const void* offsets; /* samples * slots + 1 of offsets_type; null: every bag has one key */
  size_t offsets_count;
  int32_t offsets_type;
  const float* weights; /* one a key; null: all are 1 */
  float* values;        /* [samples][slots * dim]: a lookup writes here, a push reads gradients */
  size_t values_count;
} slotwise_batch;

/* One optimizer step, as one trainer sees it (session.h). */
typedef struct slotwise_step {
  uint64_t session;
  uint64_t number;
  uint32_t trainer;
  uint32_t trainers;
  uint32_t parts;
  uint64_t epoch; /* GetTopologyReply.epoch when the session was drawn; 0: unknown */
} slotwise_step;

/* Writes the next step of the client's own session. */
SLOTWISE_API void slotwise_client_next_step(slotwise_client* client, slotwise_step* step);

/* The state of a table from which rows were read (client.h: LookedUpState). Generation 0: none. */
typedef struct slotwise_looked_up {
  union {
    uint64_t generation;
    uint64_t lineage; /* its name in 0.1 */
  };
  uint64_t table_step;
} slotwise_looked_up;

/* Writes the state that this client's latest lookup of a table has read (client.h: LookedUp). */
SLOTWISE_API void slotwise_client_looked_up(slotwise_client* client, const char* table,
                                            slotwise_looked_up* state);

/* Says that a call's arrays lie in the memory of a GPU (gpu.h). Then all arrays of its batches lie there;
 * `values` are the gradients of a push, of the type that the call's values have on the wire, and unused for a
 * lookup. */
typedef struct slotwise_gpu {
  const char* name; /* one of slotwise_client_gpus */
  void* stream;     /* a CUstream, in which the arrays are written; null: the default stream */
} slotwise_gpu;

/* Writes the names of the GPUs that both this process and the server have, each ended by a newline, into
 * `names`, of `size` bytes with the 0 that ends them all. Returns how many bytes that takes; if these are
 * more than `size`, nothing was written. */
SLOTWISE_API size_t slotwise_client_gpus(slotwise_client* client, char* names, size_t size);

/* Looks up in the tables of `count` batches, in one call. `gpu` is null if the arrays lie in the host's
 * memory. In a call with `gpu`, `behind` is null, or a call of slotwise_push of this client with `gpu`: the
 * lookup is sent once that call has ended, and sees its push. If it has failed, or was freed, which cancels
 * it, the lookup ends with SLOTWISE_CANCELLED; if it is no such call, with SLOTWISE_INVALID_ARGUMENT. */
SLOTWISE_API slotwise_call* slotwise_lookup(slotwise_client* client, const slotwise_batch* batches,
                                            size_t count, int32_t mode, const slotwise_gpu* gpu,
                                            const slotwise_call* behind, const slotwise_call_options* call);
/* Pushes to the tables of `count` batches, in one step. The call's numbers are each table's count of steps.
 * `looked_up` has, for each batch, the state that its gradients' rows were read from (client.h:
 * CallOptions::looked_up), and `learning_rates`, for each batch, the rate of this step alone, or NaN for the
 * table's own (CallOptions::learning_rates); each may be null. A null step is the next of the client's own
 * session. `gpu` is null if the arrays lie in the host's memory. */
SLOTWISE_API slotwise_call* slotwise_push(slotwise_client* client, const slotwise_batch* batches,
                                          size_t count, const slotwise_looked_up* looked_up,
                                          const float* learning_rates, const slotwise_step* step,
                                          const slotwise_gpu* gpu, const slotwise_call_options* call);
/* Returns 1 if work that overwrites the arrays of a push with `gpu` may be enqueued on its stream, though the
 * call has not ended; else 0. */
SLOTWISE_API int32_t slotwise_call_has_arrays(const slotwise_call* call);
/* Takes the rows of batch `index` out of a lookup with `gpu` that has ended with SLOTWISE_OK, as a
 * DLManagedTensor (DLPack 0.x) of the shape given, whose `deleter`, or slotwise_dlpack_free, releases them.
 * They last until then, even after the client; their memory is used again once the call's stream has come to
 * that point. The tensor gets `device_type` and `device_id`. Returns null the second time, or if the shape
 * has another number of elements, or none. */
SLOTWISE_API void* slotwise_call_dlpack(slotwise_call* call, size_t index, int32_t device_type,
                                        int32_t device_id, const int64_t* shape, size_t dimensions);
SLOTWISE_API void slotwise_dlpack_free(void* tensor);

/* --- rows by key */

/* Some rows: keys[rows], values[rows][dim], state[rows][state_size]. */
typedef struct slotwise_rows_view {
  const uint64_t* keys;
  const float* values;
  const float* state;
  size_t rows;
  size_t dim;
  size_t state_size;
} slotwise_rows_view;

/* The call's one number is how many rows were written. `rows->state_size` 0 means the state of new rows. */
SLOTWISE_API slotwise_call* slotwise_import(slotwise_client* client, const char* table,
                                            const slotwise_rows_view* rows, uint64_t table_steps,
                                            const slotwise_call_options* call);
/* The call's one number is how many keys had a row. */
SLOTWISE_API slotwise_call* slotwise_erase(slotwise_client* client, const char* table, const uint64_t* keys,
                                           size_t count, const slotwise_call_options* call);

/* Begins an export of all rows (`keys` null) or of those of `keys`. Only the timeout of `call` counts: it
 * holds for each wait for a rank. Returns null if there is no memory. */
SLOTWISE_API slotwise_rows* slotwise_export(slotwise_client* client, const char* table, int32_t with_state,
                                            const uint64_t* keys, size_t count,
                                            const slotwise_call_options* call);
/* Waits for the next rows at most `most_ms` (below 0: without limit). Returns SLOTWISE_RUNNING if none came;
 * SLOTWISE_OK with some rows in `view`, valid until the next call, or with 0 rows at the end; or the code of
 * the error that ends the export. */
SLOTWISE_API int32_t slotwise_rows_next(slotwise_rows* rows, int64_t most_ms, slotwise_rows_view* view);
/* Returns one sentence that says why the export failed, or "". */
SLOTWISE_API const char* slotwise_rows_message(const slotwise_rows* rows);
/* Returns the same for a failed export as slotwise_call_retry_after_ms for a call. */
SLOTWISE_API int64_t slotwise_rows_retry_after_ms(const slotwise_rows* rows);
/* Returns the same as slotwise_call_reason. */
SLOTWISE_API const char* slotwise_rows_reason(const slotwise_rows* rows);
/* Ends the export and frees it. Null is allowed. */
SLOTWISE_API void slotwise_rows_free(slotwise_rows* rows);

/* Writes the key of each of `count` texts: XXH3's 64-bit hash, with `seed`, of its bytes. Text i has the
 * bytes of `bytes` from where text i - 1 ends (the first: from 0) to ends[i]. May be called from several
 * threads. */
SLOTWISE_API void slotwise_hash_ids(const char* bytes, const uint64_t* ends, size_t count, uint64_t seed,
                                    uint64_t* keys);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(readability-identifier-naming) */

#endif /* SLOTWISE_SLOTWISE_H_ */
