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

/* Raised by any change after which a program that was compiled before could misbehave. */
#define SLOTWISE_ABI 7
SLOTWISE_API int32_t slotwise_abi(void);
/* The version of Slotwise, for example "0.1.0". */
SLOTWISE_API const char* slotwise_version(void);

/* How a call ended: gRPC's numbers. */
enum {
  SLOTWISE_RUNNING = -1, /* it has not ended */
  SLOTWISE_OK = 0,
  SLOTWISE_CANCELLED = 1,
  SLOTWISE_INVALID_ARGUMENT = 3,
  SLOTWISE_DEADLINE_EXCEEDED = 4,
  SLOTWISE_NOT_FOUND = 5,
  SLOTWISE_ALREADY_EXISTS = 6,
  SLOTWISE_PERMISSION_DENIED = 7, /* the server knows who calls, and he may not */
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

/* How a call differs from its client's options. All zeros is the same as no options. */
typedef struct slotwise_call_options {
  int64_t timeout_ms; /* 0: the client's */
  int32_t has_data_type;
  int32_t data_type;  /* of lookups and pushes, if has_data_type is not 0; else the client's */
  slotwise_done done; /* may be null */
  void* user;
} slotwise_call_options;

/* Says which trace the calls belong to that this thread starts from now on, as the W3C's Trace Context writes
 * it in the field traceparent; the server's log has the trace's id. Null, "" or what is none: no trace. The
 * text is copied. */
SLOTWISE_API void slotwise_set_traceparent(const char* traceparent);

/* Waits until the call has ended, at most `most_ms` (below 0: without limit), and returns its code or
 * SLOTWISE_RUNNING. */
SLOTWISE_API int32_t slotwise_call_wait(slotwise_call* call, int64_t most_ms);
/* Makes the call end soon, with SLOTWISE_CANCELLED, unless it has ended. A cancelled push may have been
 * applied. */
SLOTWISE_API void slotwise_call_cancel(slotwise_call* call);
/* Cancels the call if it runs, waits for its end, and frees it. Null is allowed. */
SLOTWISE_API void slotwise_call_free(slotwise_call* call);

/* Of a call that has ended: one sentence that says why it failed, or "". */
SLOTWISE_API const char* slotwise_call_message(const slotwise_call* call);
/* Of a call that has ended with SLOTWISE_RESOURCE_EXHAUSTED because the server stayed busy until the timeout:
 * after how many milliseconds it has room again. 0: the same call would be refused again. */
SLOTWISE_API int64_t slotwise_call_retry_after_ms(const slotwise_call* call);
/* Of a call that has failed: why, as a name of proto/slotwise/v1/errors.proto without REASON_, for example
 * "TABLE_FULL"; else "". A refusal that brought none, as an older server's, has its code's first one. */
SLOTWISE_API const char* slotwise_call_reason(const slotwise_call* call);
/* Of a call that has ended with SLOTWISE_OK: the message of proto/slotwise/v1/admin.proto that answers it, in
 * protobuf's JSON with the fields' own names, or "". */
SLOTWISE_API const char* slotwise_call_json(const slotwise_call* call);
/* Of a call that has ended with SLOTWISE_OK: its numbers, or none. */
SLOTWISE_API const uint64_t* slotwise_call_numbers(const slotwise_call* call, size_t* count);
/* Takes the client out of a call of slotwise_connect that has ended with SLOTWISE_OK. Null the second
 * time. */
SLOTWISE_API slotwise_client* slotwise_call_client(slotwise_call* call);

/* --- queues of calls that have ended, for callers whose callbacks cannot run in a thread of the client's */

/* Returns null if there is no memory. */
SLOTWISE_API slotwise_queue* slotwise_queue_new(void);
/* REQUIRES: no call that has not ended names the queue. */
SLOTWISE_API void slotwise_queue_free(slotwise_queue* queue);
/* Pass this function as a call's `done`, and the queue as its `user`. */
SLOTWISE_API void slotwise_queue_post(void* queue, slotwise_call* call);
/* Waits for a call that has ended, at most `most_ms` (below 0: without limit). Null if none came. */
SLOTWISE_API slotwise_call* slotwise_queue_take(slotwise_queue* queue, int64_t most_ms);

/* --- clients */

#define SLOTWISE_TRANSPORT_BEST 0 /* the fastest that the server has */
#define SLOTWISE_TRANSPORT_GRPC 1 /* by gRPC, as all else */
#define SLOTWISE_TRANSPORT_TCP 2  /* by sockets, wherever the server is */
#define SLOTWISE_TRANSPORT_SHM 3  /* by memory that is shared with a server on this host, or UNAVAILABLE */
#define SLOTWISE_TRANSPORT_GPU 4  /* as the best; the memory of a server without a GPU may stand for one's */
/* Their names in 0.1. */
#define SLOTWISE_DOOR_BEST SLOTWISE_TRANSPORT_BEST
#define SLOTWISE_DOOR_GRPC SLOTWISE_TRANSPORT_GRPC
#define SLOTWISE_DOOR_TCP SLOTWISE_TRANSPORT_TCP
#define SLOTWISE_DOOR_SHM SLOTWISE_TRANSPORT_SHM
#define SLOTWISE_DOOR_GPU SLOTWISE_TRANSPORT_GPU

/* How a client proves who it is, and whom it trusts to be the server: client.h's Credentials. Null texts are
 * none. */
typedef struct slotwise_credentials {
  const char* token_file;
  const char* ca_file;
  const char* certificate_file;
  const char* key_file;
  const char* server_name;
  int32_t insecure; /* not 0: the token may travel unencrypted to other hosts */
} slotwise_credentials;

typedef struct slotwise_client_options {
  int64_t timeout_ms;        /* of connecting, and of every call that names none; 0: 30,000 */
  int32_t channels_per_rank; /* 0: 2 */
  int32_t threads;           /* the client's own, which read replies; 0: 2, or where there are more than 4
                                processors, as many as half of them, but no more than channels_per_rank */
  int32_t data_type;         /* on the wire, of calls that name none */
  union {
    int32_t transport; /* how lookups and pushes travel: SLOTWISE_TRANSPORT_... */
    int32_t door;      /* its name in 0.1 */
  };
  /* Called with a line whenever a request is sent again, from any thread; may be null. It must not block. */
  void (*log)(void* log_user, const char* line);
  void* log_user;
  /* Null: what the environment says: SLOTWISE_TOKEN_FILE, SLOTWISE_CA_FILE, SLOTWISE_CERTIFICATE_FILE,
   * SLOTWISE_KEY_FILE, SLOTWISE_SERVER_NAME, SLOTWISE_INSECURE. */
  const slotwise_credentials* credentials;
} slotwise_client_options;

/* Connects to the server of which one rank listens at one of `addresses`, host:port. */
SLOTWISE_API slotwise_call* slotwise_connect(const char* const* addresses, size_t count,
                                             const slotwise_client_options* options,
                                             const slotwise_call_options* call);
/* Ends all calls with SLOTWISE_FAILED_PRECONDITION, and waits until their callbacks have run. Later calls end
 * so at once. Closing again does nothing. REQUIRES: not called from a callback. */
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
 * the call's JSON is that of the reply. `rank`: the rank that alone is asked; below 0: any. A method that is
 * answered once a checkpoint was written or read waits a day if `call` names no timeout. */
SLOTWISE_API slotwise_call* slotwise_ask(slotwise_client* client, const char* method, const char* request,
                                         int32_t rank, const slotwise_call_options* call);

/* What the arrays of a table's batches have to do with its options. */
typedef struct slotwise_table {
  uint32_t dim;
  uint32_t slots;
  int32_t pools; /* 0: its combiner is "none" */
} slotwise_table;

/* Returns 1 and writes what the client knows of a table that it has used or described; else returns 0. */
SLOTWISE_API int32_t slotwise_client_table(slotwise_client* client, const char* table, slotwise_table* known);
/* Makes the client forget a table's options, which are asked for again when they are next needed. */
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
  uint64_t epoch; /* GetTopologyReply's when the session was drawn; 0: unknown */
} slotwise_step;

/* Writes the next step of the client's own session. */
SLOTWISE_API void slotwise_client_next_step(slotwise_client* client, slotwise_step* step);

/* A table's state that rows were read of (client.h: LookedUpState). Generation 0: none. */
typedef struct slotwise_looked_up {
  union {
    uint64_t generation;
    uint64_t lineage; /* its name in 0.1 */
  };
  uint64_t table_step;
} slotwise_looked_up;

/* Writes what the lookup of a table that has ended last, of this client's, has read (client.h: LookedUp). */
SLOTWISE_API void slotwise_client_looked_up(slotwise_client* client, const char* table,
                                            slotwise_looked_up* state);

/* Where a call's arrays lie, if that is the memory of a GPU (gpu.h). Then all arrays of its batches lie
 * there; `values` are the gradients of a push, of the type that the call's values have on the wire, and
 * nothing for a lookup. */
typedef struct slotwise_gpu {
  const char* name; /* one of slotwise_client_gpus */
  void* stream;     /* a CUstream, in which the arrays are written; null: the default stream */
} slotwise_gpu;

/* Writes the names of the GPUs that both this process and the server have, each ended by a newline, into
 * `names`, of `size` bytes with the 0 that ends them all. Returns how many bytes that takes; if they are
 * more, nothing was written. */
SLOTWISE_API size_t slotwise_client_gpus(slotwise_client* client, char* names, size_t size);

/* Looks up in the tables of `count` batches, in one call. `gpu`: null if the arrays lie in the host's memory.
 * `behind`, of a call with `gpu`: null, or a call of slotwise_push of this client with `gpu`: the lookup is
 * sent once that has ended, and sees its push. If that has failed, or was freed, which cancels it, the lookup
 * ends with SLOTWISE_CANCELLED; if it is no such call, with SLOTWISE_INVALID_ARGUMENT. */
SLOTWISE_API slotwise_call* slotwise_lookup(slotwise_client* client, const slotwise_batch* batches,
                                            size_t count, int32_t mode, const slotwise_gpu* gpu,
                                            const slotwise_call* behind, const slotwise_call_options* call);
/* Pushes to the tables of `count` batches, in one step. The call's numbers are each table's count of steps.
 * `looked_up` has, of each batch, what the rows were read of that its gradients are of (client.h:
 * CallOptions::looked_up), and `learning_rates`, of each batch, the rate of this step alone, or NaN for the
 * table's own (CallOptions::learning_rates); each may be null. A null step is the next of the client's own
 * session. `gpu`: null if the arrays lie in the host's memory. */
SLOTWISE_API slotwise_call* slotwise_push(slotwise_client* client, const slotwise_batch* batches,
                                          size_t count, const slotwise_looked_up* looked_up,
                                          const float* learning_rates, const slotwise_step* step,
                                          const slotwise_gpu* gpu, const slotwise_call_options* call);
/* Returns 1 if the stream of a push with `gpu` may be asked for what writes its arrays again,
 * though the call has not ended; else 0. */
SLOTWISE_API int32_t slotwise_call_has_arrays(const slotwise_call* call);
/* Takes the rows of batch `index` out of a lookup with `gpu` that has ended with SLOTWISE_OK, as
 * a DLManagedTensor (DLPack 0.x) of the shape given, whose `deleter`, or slotwise_dlpack_free, lets go of
 * them. They last until then, whatever becomes of the client; their memory is used again once the call's
 * stream has come to that point. `device_type` and `device_id` are what the tensor says of itself. Null the
 * second time, or if the shape has another number of elements, or none. */
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

/* The call's one number is how many rows were written. `rows->state_size` 0 gives the state of new rows. */
SLOTWISE_API slotwise_call* slotwise_import(slotwise_client* client, const char* table,
                                            const slotwise_rows_view* rows, uint64_t table_steps,
                                            const slotwise_call_options* call);
/* The call's one number is how many keys had a row. */
SLOTWISE_API slotwise_call* slotwise_erase(slotwise_client* client, const char* table, const uint64_t* keys,
                                           size_t count, const slotwise_call_options* call);

/* Begins an export of all rows (`keys` null) or of those of `keys`. Of `call`, only the timeout counts: it
 * holds for each wait for a rank. Returns null if there is no memory. */
SLOTWISE_API slotwise_rows* slotwise_export(slotwise_client* client, const char* table, int32_t with_state,
                                            const uint64_t* keys, size_t count,
                                            const slotwise_call_options* call);
/* Waits for the next rows at most `most_ms` (below 0: without limit). Returns SLOTWISE_RUNNING if none came;
 * SLOTWISE_OK with some rows in `view`, valid until the next call, or with 0 rows at the end; or the code of
 * the error that ends the export. */
SLOTWISE_API int32_t slotwise_rows_next(slotwise_rows* rows, int64_t most_ms, slotwise_rows_view* view);
/* One sentence that says why the export failed, or "". */
SLOTWISE_API const char* slotwise_rows_message(const slotwise_rows* rows);
/* Of an export that has failed: as slotwise_call_retry_after_ms. */
SLOTWISE_API int64_t slotwise_rows_retry_after_ms(const slotwise_rows* rows);
/* As slotwise_call_reason. */
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
