/* The producer of producer.c: a library of its own, which links nothing of this project's. */
#ifndef PRODUCER_H
#define PRODUCER_H

#include "hurray.h"

/* A buffer to be made: `byte_size` bytes of value `fill`, `offset` bytes past the begin of a page. */
typedef struct ProducerBuffer {
    uint64_t byte_size;
    uint64_t offset;
    uint32_t flags;
    uint32_t device_id;
    uint8_t device_tag;
    uint8_t memory_class;
    uint8_t sync_mode;
    uint8_t fill;
} ProducerBuffer;

/*
 * Makes a list that says what `buffers` and `descriptor` say, true or not; both are copied. `*list` is the caller's to put into a capsule,
 * and `*context` lives as long. Returns HURRAY_OK or HURRAY_ERR_OUT_OF_MEMORY.
 */
int32_t producer_list_new(const uint8_t *descriptor, uint64_t descriptor_len, const ProducerBuffer *buffers, uint64_t len,
                          HurrayBufferList **list, HurrayCapsuleContext **context);

/* `list_destroy` of the table, for those who cannot reach it there. */
int32_t producer_list_destroy(HurrayBufferList **list);

/* Lists, buffers and events that were made and not yet let go. */
uint64_t producer_live_lists(void);
uint64_t producer_live_buffers(void);
uint64_t producer_live_events(void);

/* Calls that let go of a buffer or event a second time. */
uint64_t producer_double_releases(void);

#endif
