/*
 * A producer with a table of its own. Bytes and events are blocks of their own, so that AddressSanitizer sees every use after a release.
 * As a shared library it serves tests in other languages: they put list and context into a capsule.
 */
#include "producer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct Buffer {
    const HurrayApi *api; /* first in every handle */
    ProducerBuffer said;
    unsigned char *block;
    int *event;
    atomic_int released;
    atomic_int event_released;
} Buffer;

typedef struct List {
    const HurrayApi *api; /* first in every handle */
    HurrayCapsuleContext context;
    uint8_t *descriptor;
    uint64_t len;
    Buffer buffers[];
} List;

static atomic_uint_least64_t live_lists, live_buffers, live_events, double_releases;
static _Thread_local const char *error_text = "";

static int32_t fail(int32_t status, const char *text) {
    error_text = text;
    return status;
}

static const char *last_error(void) {
    return error_text;
}

static int32_t list_len(const HurrayBufferList *handle, uint64_t *out) {
    if (handle == NULL || out == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    *out = ((const List *)handle)->len;
    return HURRAY_OK;
}

static int32_t list_get(const HurrayBufferList *handle, uint64_t index, const HurrayBuffer **out) {
    const List *list = (const List *)handle;
    if (list == NULL || out == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    if (index >= list->len) {
        return fail(HURRAY_ERR_INDEX_OUT_OF_BOUNDS, "the C producer has no such buffer");
    }
    if (atomic_load(&list->buffers[index].released)) {
        return fail(HURRAY_ERR_RELEASED, "the C producer's buffer has been let go");
    }
    *out = (const HurrayBuffer *)&list->buffers[index];
    return HURRAY_OK;
}

static int32_t let_event_go(Buffer *buffer) {
    if (buffer->event == NULL) {
        return HURRAY_OK;
    }
    if (atomic_exchange(&buffer->event_released, 1)) {
        return HURRAY_ERR_RELEASED;
    }
    free(buffer->event);
    atomic_fetch_sub(&live_events, 1);
    return HURRAY_OK;
}

static int32_t let_go(Buffer *buffer) {
    if (atomic_exchange(&buffer->released, 1)) {
        return HURRAY_ERR_RELEASED;
    }
    let_event_go(buffer);
    free(buffer->block);
    atomic_fetch_sub(&live_buffers, 1);
    return HURRAY_OK;
}

static int32_t list_destroy(HurrayBufferList **handle) {
    if (handle == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    List *list = (List *)*handle;
    if (list == NULL) {
        return HURRAY_OK;
    }
    *handle = NULL;
    for (uint64_t i = 0; i < list->len; i++) {
        let_go(&list->buffers[i]);
    }
    free(list->descriptor);
    free(list);
    atomic_fetch_sub(&live_lists, 1);
    return HURRAY_OK;
}

static int32_t find(HurrayBufferList *handle, uint64_t index, Buffer **out) {
    List *list = (List *)handle;
    if (list == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    if (index >= list->len) {
        return fail(HURRAY_ERR_INDEX_OUT_OF_BOUNDS, "the C producer has no such buffer");
    }
    *out = &list->buffers[index];
    return HURRAY_OK;
}

static int32_t list_release(HurrayBufferList *handle, uint64_t index, uintptr_t stream) {
    Buffer *buffer = NULL;
    int32_t status = find(handle, index, &buffer);
    if (status != HURRAY_OK) {
        return status;
    }
    if (stream == 0) {
        return fail(HURRAY_ERR_INVALID_STREAM, "stream 0");
    }
    if (stream != HURRAY_NO_STREAM) {
        return fail(HURRAY_ERR_UNSUPPORTED, "the C producer has no device layer");
    }
    if (let_go(buffer) != HURRAY_OK) {
        atomic_fetch_add(&double_releases, 1);
        return fail(HURRAY_ERR_RELEASED, "the C producer's buffer was let go before");
    }
    return HURRAY_OK;
}

static int32_t list_release_after(HurrayBufferList **handle, uintptr_t stream) {
    if (stream == 0) {
        return fail(HURRAY_ERR_INVALID_STREAM, "stream 0");
    }
    if (stream != HURRAY_NO_STREAM) {
        return fail(HURRAY_ERR_UNSUPPORTED, "the C producer has no device layer");
    }
    return list_destroy(handle);
}

static int32_t buffer_info(const HurrayBuffer *handle, HurrayBufferInfo *out) {
    const Buffer *buffer = (const Buffer *)handle;
    if (buffer == NULL || out == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    if (out->struct_size < sizeof *out) {
        return fail(HURRAY_ERR_SHORT_STRUCT, "HurrayBufferInfo is too short");
    }
    const ProducerBuffer *said = &buffer->said;
    uintptr_t address = (uintptr_t)buffer->block + said->offset;
    uint32_t alignment = 1;
    while (alignment < 4096 && address % (alignment * 2) == 0) {
        alignment *= 2;
    }
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->flags = said->flags;
    out->data = buffer->block + said->offset;
    out->byte_size = said->byte_size;
    out->alignment = said->byte_size == 0 ? 1 : alignment;
    out->device_id = said->device_id;
    out->device_tag = said->device_tag;
    out->memory_class = said->memory_class;
    out->sync_mode = said->sync_mode;
    return HURRAY_OK;
}

static int32_t buffer_sync(const HurrayBuffer *handle, HurrayBufferSync *out) {
    const Buffer *buffer = (const Buffer *)handle;
    if (buffer == NULL || out == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    if (out->struct_size < sizeof *out) {
        return fail(HURRAY_ERR_SHORT_STRUCT, "HurrayBufferSync is too short");
    }
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->sync_mode = buffer->said.sync_mode;
    out->event = buffer->event;
    out->stream = buffer->said.sync_mode == 2 ? 0x51 : 0;
    return HURRAY_OK;
}

static int32_t buffer_wait(const HurrayBuffer *handle, uintptr_t stream) {
    if (handle == NULL) {
        return fail(HURRAY_ERR_NULL_POINTER, "NULL argument");
    }
    if (stream == 0 || stream == HURRAY_NO_STREAM) {
        return fail(HURRAY_ERR_INVALID_STREAM, "no stream");
    }
    if (((const Buffer *)handle)->said.sync_mode != 0) {
        return fail(HURRAY_ERR_UNSUPPORTED, "the C producer has no device layer");
    }
    return HURRAY_OK;
}

static int32_t buffer_wait_host(const HurrayBuffer *handle) {
    return buffer_wait(handle, 1);
}

static int32_t event_release(HurrayBufferList *handle, uint64_t index) {
    Buffer *buffer = NULL;
    int32_t status = find(handle, index, &buffer);
    if (status != HURRAY_OK) {
        return status;
    }
    if (let_event_go(buffer) != HURRAY_OK) {
        atomic_fetch_add(&double_releases, 1);
        return fail(HURRAY_ERR_RELEASED, "the C producer's event was let go before");
    }
    return HURRAY_OK;
}

static const HurrayApi table = {
    .struct_size = sizeof(HurrayApi),
    .abi_version = HURRAY_C_ABI_VERSION,
    .list_len = list_len,
    .list_get = list_get,
    .list_destroy = list_destroy,
    .list_release = list_release,
    .list_release_after = list_release_after,
    .buffer_info = buffer_info,
    .buffer_sync = buffer_sync,
    .buffer_wait = buffer_wait,
    .buffer_wait_host = buffer_wait_host,
    .event_release = event_release,
    .last_error = last_error,
};

/* Gives `buffer` its own bytes and, in mode event, its own event. */
static int fill(Buffer *buffer, const ProducerBuffer *said) {
    uint64_t size = said->offset + said->byte_size;
    buffer->api = &table;
    buffer->said = *said;
    buffer->block = aligned_alloc(4096, (size + 4096) / 4096 * 4096);
    if (buffer->block == NULL) {
        return 0;
    }
    memset(buffer->block + said->offset, said->fill, said->byte_size);
    atomic_fetch_add(&live_buffers, 1);
    if (said->sync_mode == 1) {
        buffer->event = malloc(sizeof *buffer->event);
        if (buffer->event == NULL) {
            return 0;
        }
        atomic_fetch_add(&live_events, 1);
    }
    return 1;
}

int32_t producer_list_new(const uint8_t *descriptor, uint64_t descriptor_len, const ProducerBuffer *buffers, uint64_t len,
                          HurrayBufferList **list, HurrayCapsuleContext **context) {
    List *made = calloc(1, sizeof *made + len * sizeof *made->buffers);
    if (made == NULL) {
        return fail(HURRAY_ERR_OUT_OF_MEMORY, "no memory");
    }
    atomic_fetch_add(&live_lists, 1);
    HurrayBufferList *handle = (HurrayBufferList *)made;
    made->api = &table;
    made->descriptor = malloc(descriptor_len + 1);
    for (; made->descriptor != NULL && made->len < len; made->len++) {
        if (!fill(&made->buffers[made->len], &buffers[made->len])) {
            break;
        }
    }
    if (made->descriptor == NULL || made->len < len) {
        list_destroy(&handle);
        return fail(HURRAY_ERR_OUT_OF_MEMORY, "no memory");
    }
    memcpy(made->descriptor, descriptor, descriptor_len);
    made->context = (HurrayCapsuleContext){
        .abi_version = HURRAY_C_ABI_VERSION,
        .struct_size = sizeof(HurrayCapsuleContext),
        .descriptor = made->descriptor,
        .descriptor_len = descriptor_len,
        .api = &table,
    };
    *list = handle;
    *context = &made->context;
    return HURRAY_OK;
}

int32_t producer_list_destroy(HurrayBufferList **list) {
    return list_destroy(list);
}

uint64_t producer_live_lists(void) {
    return atomic_load(&live_lists);
}

uint64_t producer_live_buffers(void) {
    return atomic_load(&live_buffers);
}

uint64_t producer_live_events(void) {
    return atomic_load(&live_events);
}

uint64_t producer_double_releases(void) {
    return atomic_load(&double_releases);
}
