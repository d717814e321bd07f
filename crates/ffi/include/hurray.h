/*
 * The C ABI of hurray-runtime, version 3: capsules that carry the buffers of a whole tensor, without copying them.
 *
 * A consumer needs this header and links nothing: it calls the functions of the capsule's own table. A producer either links
 * the library (`hurray_buffer_from_ptr`, `hurray_buffer_list_new`) or fills in a `HurrayApi` of its own. docs/c-abi.md explains both.
 *
 * 64-bit targets only. Every function returns HURRAY_OK or a HURRAY_ERR_...; one that fails has changed nothing: what the caller
 * owned it still owns, and no callback has been or will be called. NULL arguments are errors. Calls on one list may run
 * at the same time; whatever destroys a list or lets go of a buffer comes after all other calls on it.
 */


#ifndef HURRAY_H
#define HURRAY_H

/* Generated from crates/ffi by cbindgen: `make header` writes it anew. */

#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX != UINT64_MAX
#error "the Hurray ABI is for 64-bit targets"
#endif

// For `list_release` and `list_release_after`: nothing is queued that uses the bytes. The number is -1.
#define HURRAY_NO_STREAM UINTPTR_MAX

// Name of a capsule that can be consumed, and of one that was. A consumer compares the text and renames before it takes the list.
#define HURRAY_CAPSULE_NAME "hurray_buffer"
#define HURRAY_USED_CAPSULE_NAME "used_hurray_buffer"

// Success.
#define HURRAY_OK 0

// A pointer that must not be NULL is.
#define HURRAY_ERR_NULL_POINTER -1

// An argument that cannot be: a device or mode that does not exist, a handle that is not the function's to take.
#define HURRAY_ERR_INVALID_ARGUMENT -2

// No buffer of that index.
#define HURRAY_ERR_INDEX_OUT_OF_BOUNDS -3

// The buffer or its event has been let go.
#define HURRAY_ERR_RELEASED -4

// Stream 0, which means different streams in different compilations; no stream where one is needed; a stream of another device.
#define HURRAY_ERR_INVALID_STREAM -5

// Not without a device layer: nothing has happened.
#define HURRAY_ERR_UNSUPPORTED -6

// A struct or table is shorter than the call needs, or of another ABI version.
#define HURRAY_ERR_SHORT_STRUCT -7

// No memory.
#define HURRAY_ERR_OUT_OF_MEMORY -8

// The device's driver reports a failure.
#define HURRAY_ERR_DEVICE -9

// A defect of the library.
#define HURRAY_ERR_INTERNAL -10

// The version of this ABI, first in every context and table.
#define HURRAY_C_ABI_VERSION 3

// Flag of a buffer: nobody writes to its bytes.
#define HURRAY_READ_ONLY 1

// Flag of a buffer: its row names another place or mode than the bytes have. It is relayed, and its bytes are given to nobody.
#define HURRAY_DECLARED 2



// One buffer. Opaque but for its first member, which is a `const HurrayApi *`.
typedef struct HurrayBuffer HurrayBuffer;

// The buffers of one tensor or composite, in the order of the descriptor's buffer table. Opaque but for its first member, which is a
// `const HurrayApi *`.
typedef struct HurrayBufferList HurrayBufferList;

// What `buffer_info` tells. The caller sets `struct_size` to `sizeof(HurrayBufferInfo)`; the function writes no further and sets it to what it wrote.
typedef struct HurrayBufferInfo {
    // Bytes of this struct.
    uint32_t struct_size;
    // `HURRAY_READ_ONLY`, `HURRAY_DECLARED`. Ignore bits you do not know.
    uint32_t flags;
    // The first byte; meaningless when there are none, and a host pointer only where the device's addresses are.
    void *data;
    // Bytes.
    uint64_t byte_size;
    // The alignment that the address has, as measured.
    uint32_t alignment;
    // Which device of the tagged kind.
    uint32_t device_id;
    // The device tag of `buffers.md` § 3.
    uint8_t device_tag;
    // The memory class of `buffers.md` § 4.
    uint8_t memory_class;
    // The sync mode of `buffers.md` § 6: 0 producer-synced, 1 event, 2 consumer-stream.
    uint8_t sync_mode;
    // Zero.
    uint8_t reserved[5];
} HurrayBufferInfo;

// What `buffer_sync` tells. The caller sets `struct_size` to `sizeof(HurrayBufferSync)`; the function writes no further and sets it to what it wrote.
typedef struct HurrayBufferSync {
    // Bytes of this struct.
    uint32_t struct_size;
    // As in `HurrayBufferInfo`.
    uint8_t sync_mode;
    // Zero.
    uint8_t reserved[3];
    // Mode event: the event that readers wait for, borrowed until `event_release`. Otherwise NULL.
    void *event;
    // Mode consumer-stream: the stream that is ordered after the writes, valid until the buffer is let go. Otherwise 0.
    uintptr_t stream;
} HurrayBufferSync;

// The bytes that `hurray_buffer_from_ptr` makes a buffer of. Set `struct_size` to `sizeof(HurrayBufferDesc)` and zero what you do not use.
typedef struct HurrayBufferDesc {
    // Bytes of this struct.
    uint32_t struct_size;
    // `HURRAY_READ_ONLY`, `HURRAY_DECLARED`; no other bit.
    uint32_t flags;
    // The first byte; may be NULL when there are none.
    void *data;
    // Bytes.
    uint64_t byte_size;
    // Which device of the tagged kind; 0 for the host.
    uint32_t device_id;
    // The device tag of `buffers.md` § 3.
    uint8_t device_tag;
    // The memory class of `buffers.md` § 4.
    uint8_t memory_class;
    // The sync mode of `buffers.md` § 6; 0 for the host.
    uint8_t sync_mode;
    // Zero.
    uint8_t reserved;
    // Mode event: the event, recorded already. Otherwise NULL.
    void *event;
    // Mode consumer-stream: the stream, which lives until the bytes are let go. Otherwise 0 or `HURRAY_NO_STREAM`.
    uintptr_t stream;
    // Lets go of the bytes: called once, on any thread, with `data` and `release_context`. May be NULL.
    void (*release)(void *data, void *context);
    // The second argument of `release` and of `release_after`.
    void *release_context;
    // Mode event: lets go of the event: called once, on any thread, with `event` and `event_context`, before `release`. Otherwise NULL.
    void (*event_release)(void *event, void *context);
    // The second argument of `event_release`.
    void *event_context;
    // Called instead of `release` where streams may still use the bytes, for memory of a stream-ordered allocator: they may be reused once `event` is
    // complete, which is borrowed for the call. May be NULL. Without a device layer it is never called.
    void (*release_after)(void *data, void *context, void *event);
} HurrayBufferDesc;

// A producer's functions for the handles it made. Table and functions live as long as any handle. Every function answers 0 or a
// `HURRAY_ERR_…`, and one that fails has changed nothing.
typedef struct HurrayApi {
    // Bytes of this struct as its producer knows it.
    uint32_t struct_size;
    // `HURRAY_C_ABI_VERSION`.
    uint32_t abi_version;
    // Number of buffers. `list` is borrowed.
    int32_t (*list_len)(const struct HurrayBufferList *list, uint64_t *out);
    // Buffer `index`, borrowed from the list: the caller never destroys it. `HURRAY_ERR_INDEX_OUT_OF_BOUNDS` past the end, `HURRAY_ERR_RELEASED`
    // where the buffer has been let go. `*out` is written on success only.
    int32_t (*list_get)(const struct HurrayBufferList *list, uint64_t index, const struct HurrayBuffer **out);
    // Lets go of all buffers and events that are left, each exactly once, and frees list and context; `*list` becomes NULL. A NULL `*list` is a no-op.
    int32_t (*list_destroy)(struct HurrayBufferList **list);
    // Lets go of buffer `index`, and of its event, when the work queued on `stream` by now is done; `HURRAY_NO_STREAM`: all work is done. Handles
    // borrowed for it are dead.
    int32_t (*list_release)(struct HurrayBufferList *list, uint64_t index, uintptr_t stream);
    // `list_release` of what is left, then frees list and context; `*list` becomes NULL. A NULL `*list` is a no-op. Never blocks.
    int32_t (*list_release_after)(struct HurrayBufferList **list, uintptr_t stream);
    // Writes `*out`, whose `struct_size` the caller has set. `buffer` is borrowed.
    int32_t (*buffer_info)(const struct HurrayBuffer *buffer, struct HurrayBufferInfo *out);
    // Writes `*out`, whose `struct_size` the caller has set: event and stream stay the producer's. `HURRAY_ERR_RELEASED` once the event has been let go.
    int32_t (*buffer_sync)(const struct HurrayBuffer *buffer, struct HurrayBufferSync *out);
    // Makes later work on `stream` wait for the buffer's writes, on the device. `HURRAY_NO_STREAM` is `HURRAY_ERR_INVALID_STREAM`.
    int32_t (*buffer_wait)(const struct HurrayBuffer *buffer, uintptr_t stream);
    // Blocks until the bytes may be read.
    int32_t (*buffer_wait_host)(const struct HurrayBuffer *buffer);
    // All waits on the event of buffer `index` are queued: its producer may reuse it. Once per buffer; success where the buffer has no event.
    int32_t (*event_release)(struct HurrayBufferList *list, uint64_t index);
    // Text of the calling thread's last failure in this library, valid until its next; empty before the first.
    const char *(*last_error)(void);
} HurrayApi;

// What a capsule's context points to. It belongs to the list and dies with it.
typedef struct HurrayCapsuleContext {
    // `HURRAY_C_ABI_VERSION`; first in every version, and checked before anything else is touched.
    uint32_t abi_version;
    // Bytes of this struct as its producer knows it.
    uint32_t struct_size;
    // The encoded TensorDescriptor; of a composite the head's and then each member's, in stream order.
    const uint8_t *descriptor;
    // Bytes of `descriptor`.
    uint64_t descriptor_len;
    // The producer's functions for the producer's handles.
    const struct HurrayApi *api;
} HurrayCapsuleContext;



#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// `list_len` of the list's own table: the number of its buffers.
//
// # Safety
// `list` is NULL or a live list of any library; `out` is NULL or a variable.
int32_t hurray_buffer_list_len(const struct HurrayBufferList *list, uint64_t *out);

// `list_get` of the list's own table: buffer `index`, borrowed from the list. Never destroy it.
//
// # Safety
// `list` is NULL or a live list of any library; `out` is NULL or a variable.
int32_t hurray_buffer_list_get(const struct HurrayBufferList *list, uint64_t index, const struct HurrayBuffer **out);

// `list_destroy` of the list's own table: the list and what is left of it are let go, `*list` becomes NULL. A NULL `*list` is a no-op.
//
// # Safety
// `list` is NULL or a variable with NULL or a live list of any library, which is the caller's to destroy.
int32_t hurray_buffer_list_destroy(struct HurrayBufferList **list);

// `list_release` of the list's own table: buffer `index` is let go when the work queued on `stream` by now is done.
//
// # Safety
// `list` is NULL or a live list of any library; no call uses buffer `index` meanwhile or later.
int32_t hurray_buffer_list_release(struct HurrayBufferList *list, uint64_t index, uintptr_t stream);

// `list_release_after` of the list's own table: `list_release` of what is left, then the list; `*list` becomes NULL. A NULL `*list` is a no-op.
//
// # Safety
// `list` is NULL or a variable with NULL or a live list of any library, which is the caller's to destroy.
int32_t hurray_buffer_list_release_after(struct HurrayBufferList **list,
                                         uintptr_t stream);

// `buffer_info` of the buffer's own table: where the bytes are and what they are like.
//
// # Safety
// `buffer` is NULL or a live buffer of any library; `out` is NULL or a struct whose `struct_size` is set.
int32_t hurray_buffer_info(const struct HurrayBuffer *buffer, struct HurrayBufferInfo *out);

// `buffer_sync` of the buffer's own table: the event or stream that goes with the sync mode, borrowed.
//
// # Safety
// `buffer` is NULL or a live buffer of any library; `out` is NULL or a struct whose `struct_size` is set.
int32_t hurray_buffer_sync(const struct HurrayBuffer *buffer, struct HurrayBufferSync *out);

// `buffer_wait` of the buffer's own table: later work on `stream` waits for the buffer's writes.
//
// # Safety
// `buffer` is NULL or a live buffer of any library; `stream` is a stream of its device.
int32_t hurray_buffer_wait(const struct HurrayBuffer *buffer, uintptr_t stream);

// `buffer_wait_host` of the buffer's own table: blocks until the bytes may be read.
//
// # Safety
// `buffer` is NULL or a live buffer of any library.
int32_t hurray_buffer_wait_host(const struct HurrayBuffer *buffer);

// `event_release` of the list's own table: all waits on the event of buffer `index` are queued.
//
// # Safety
// `list` is NULL or a live list of any library; nothing uses the event afterwards.
int32_t hurray_event_release(struct HurrayBufferList *list, uint64_t index);

// Text of the calling thread's last failure in an exported function, also of another library's handle; valid until the next, empty before the
// first. Never NULL, never to be freed.
const char *hurray_last_error(void);

// Makes a buffer of memory of the caller's. On success the buffer owns the bytes, and the event if there is one, and `*out` is the caller's to
// put into a list or destroy; `desc` itself stays the caller's. On failure nothing has happened, and no callback is called.
//
// # Safety
// * `desc` is NULL or a struct of the size that it says; `out` is NULL or a variable.
// * `data` is valid for `byte_size` bytes on its device until `release` or `release_after` is called, and nobody writes to the bytes once their
//   mode says that they may be read.
// * The callbacks may be called once, on any thread.
int32_t hurray_buffer_from_ptr(const struct HurrayBufferDesc *desc,
                               struct HurrayBuffer **out);

// Destroys a buffer of `hurray_buffer_from_ptr`: event and bytes are let go, `*buffer` becomes NULL. A NULL `*buffer` is a no-op. Never for a
// handle from `list_get`, which belongs to its list.
//
// # Safety
// `buffer` is NULL or a variable with NULL or a live buffer, and nothing uses that afterwards.
int32_t hurray_buffer_destroy(struct HurrayBuffer **buffer);

// Makes a list of `len` buffers of `hurray_buffer_from_ptr`, whose context holds a copy of the `descriptor_len` bytes at `descriptor`. On success the
// list owns all of them, every entry of `buffers` becomes NULL, and `*out` is the caller's to put into a capsule or destroy. On failure nothing has
// happened. Descriptor and buffers are not checked against each other: the consumer does.
//
// # Safety
// * `buffers` is an array of `len` live buffers which nobody else uses meanwhile, or NULL if `len` is 0; `out` is NULL or a variable.
// * `descriptor` has `descriptor_len` readable bytes, or is NULL if that is 0.
int32_t hurray_buffer_list_new(struct HurrayBuffer **buffers,
                               uint64_t len,
                               const uint8_t *descriptor,
                               uint64_t descriptor_len,
                               struct HurrayBufferList **out);

// The context of a list of `hurray_buffer_list_new`, which belongs into the capsule beside it. It belongs to the list and dies with it.
//
// # Safety
// `list` is NULL or a live list; `out` is NULL or a variable.
int32_t hurray_buffer_list_context(const struct HurrayBufferList *list,
                                   const struct HurrayCapsuleContext **out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HURRAY_H */
