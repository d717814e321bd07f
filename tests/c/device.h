/*
 * A producer and a consumer of device memory. As a producer it has a table and a stream-ordered allocator of its own, and links nothing of this project;
 * `linked_list_new` is the other kind, which gives the library callbacks. It calls the driver of whoever loads it.
 */
#ifndef DEVICE_H
#define DEVICE_H

#include "hurray.h"

/* A buffer to be made: `byte_size` bytes, written on `stream` unless the mode is 0. */
typedef struct DeviceBuffer {
    uint64_t byte_size;
    uintptr_t stream;
    uint8_t sync_mode;
} DeviceBuffer;

/* What this library uses of ours: a program that loads it at run time passes it. */
typedef struct Linked {
    int32_t (*buffer_from_ptr)(const HurrayBufferDesc *, HurrayBuffer **);
    int32_t (*list_new)(HurrayBuffer **, uint64_t, const uint8_t *, uint64_t, HurrayBufferList **);
    int32_t (*list_context)(const HurrayBufferList *, const HurrayCapsuleContext **);
    int32_t (*list_destroy)(HurrayBufferList **);
} Linked;

/* Makes a list with a table of its own. HURRAY_OK, or HURRAY_ERR_DEVICE where the driver fails. */
int32_t device_list_new(const uint8_t *descriptor, uint64_t descriptor_len, const DeviceBuffer *buffers, uint64_t len,
                        HurrayBufferList **list, const HurrayCapsuleContext **context);

/* Makes the same of the library's buffers; with `ordered` they take bytes back in a stream's order. */
int32_t linked_list_new(const Linked *linked, int32_t ordered, const uint8_t *descriptor, uint64_t descriptor_len,
                        const DeviceBuffer *buffers, uint64_t len, HurrayBufferList **list,
                        const HurrayCapsuleContext **context);

/* How a consumer gives back what it took. */
enum {
    DEVICE_EACH,  /* `list_release` of each buffer, the last first, with the stream */
    DEVICE_AFTER, /* `list_release_after` */
    DEVICE_SELF,  /* it waits for what `buffer_sync` gives, releases the events, and destroys the list once its work is done */
};

/* Reads every byte of a list on `stream`, and gives the list back. The first status that is not HURRAY_OK; the list is gone in any case. */
int32_t device_consume(HurrayBufferList *list, const HurrayCapsuleContext *context, uintptr_t stream, int32_t how);

/* Lists, buffers and events that were made and not yet let go. */
uint64_t device_live_lists(void);
uint64_t device_live_buffers(void);
uint64_t device_live_events(void);

/* Calls that let go of a buffer or event a second time, or of an event after its bytes. */
uint64_t device_wrong_releases(void);

/* Buffers that went back with a stream or event, and the stream of the last. */
uint64_t device_ordered_releases(void);
uintptr_t device_last_stream(void);

#endif
