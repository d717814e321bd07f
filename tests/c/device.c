#include "device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* As much of the driver API as is used here. */
typedef unsigned long long Address;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuMemAllocAsync(Address *address, size_t size, void *stream);
int cuMemFreeAsync(Address address, void *stream);
int cuMemsetD8Async(Address address, unsigned char byte, size_t size, void *stream);
int cuMemcpyDtoDAsync_v2(Address target, Address source, size_t size, void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventSynchronize(void *event);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);
int cuStreamSynchronize(void *stream);

enum { CUDA = 1, EVENT = 1, CONSUMER_STREAM = 2, DISABLE_TIMING = 2 };

/* The bytes and the event of a buffer, whoever holds them. */
typedef struct Memory {
    Address address;
    uint64_t size;
    void *stream; /* the allocation's, on which the bytes are written */
    void *event;  /* NULL unless the mode is event */
    uint8_t sync_mode;
    atomic_int released;
    atomic_int event_released;
} Memory;

typedef struct Buffer {
    const HurrayApi *api; /* first in every handle */
    Memory memory;
} Buffer;

typedef struct List {
    const HurrayApi *api; /* first in every handle */
    HurrayCapsuleContext context;
    uint8_t *descriptor;
    uint64_t len;
    Buffer buffers[];
} List;

static atomic_uint_least64_t live_lists, live_buffers, live_events, wrong_releases, ordered_releases;
static atomic_uintptr_t last_stream;
static _Thread_local const char *error_text = "";

static int32_t fail(int32_t status, const char *text) {
    error_text = text;
    return status;
}

static const char *last_error(void) {
    return error_text;
}

/* Makes the device's context current; `leave` gives the one before back. */
static int enter(void) {
    void *context;
    int code = cuInit(0);
    if (code == 0) {
        code = cuDevicePrimaryCtxRetain(&context, 0);
    }
    return code != 0 ? code : cuCtxPushCurrent_v2(context);
}

static int32_t leave(int code) {
    void *context;
    cuCtxPopCurrent_v2(&context);
    return code == 0 ? HURRAY_OK : fail(HURRAY_ERR_DEVICE, "the driver failed under the C program");
}

/* Makes `stream` wait for what is queued on `source`. */
static int follow(void *stream, void *source) {
    void *event;
    int code = cuEventCreate(&event, DISABLE_TIMING);
    if (code != 0) {
        return code;
    }
    code = cuEventRecord(event, source);
    if (code == 0) {
        code = cuStreamWaitEvent(stream, event, 0);
    }
    cuEventDestroy_v2(event);
    return code;
}

static void let_event_go(Memory *memory) {
    if (memory->event != NULL && !atomic_exchange(&memory->event_released, 1)) {
        cuEventDestroy_v2(memory->event);
        atomic_fetch_sub(&live_events, 1);
    }
}

/* Lets the bytes go on a stream; what is queued there by now is over when they are used again. Where it fails they are held as before. */
static int32_t let_go(Memory *memory, void *stream) {
    if (atomic_exchange(&memory->released, 1)) {
        atomic_fetch_add(&wrong_releases, 1);
        return fail(HURRAY_ERR_RELEASED, "the C program's buffer was let go before");
    }
    int code = enter();
    if (code == 0) {
        code = cuMemFreeAsync(memory->address, stream);
    }
    if (code == 0) {
        let_event_go(memory);
        atomic_fetch_sub(&live_buffers, 1);
    } else {
        atomic_store(&memory->released, 0);
    }
    return leave(code);
}

/* Allocates a buffer and writes it. */
static int fill(Memory *memory, const DeviceBuffer *said) {
    memory->size = said->byte_size;
    memory->sync_mode = said->sync_mode;
    memory->stream = (void *)said->stream;
    int code = enter();
    if (code == 0) {
        code = cuMemAllocAsync(&memory->address, memory->size, memory->stream);
    }
    if (code != 0) {
        return leave(code);
    }
    atomic_fetch_add(&live_buffers, 1);
    code = cuMemsetD8Async(memory->address, 7, memory->size, memory->stream);
    if (code == 0 && said->sync_mode == EVENT) {
        code = cuEventCreate(&memory->event, DISABLE_TIMING);
        if (code == 0) {
            atomic_fetch_add(&live_events, 1);
            code = cuEventRecord(memory->event, memory->stream);
        }
    } else if (code == 0 && said->sync_mode == 0) {
        code = cuStreamSynchronize(memory->stream);
    }
    return leave(code);
}

/* The table. */

static int32_t list_len(const HurrayBufferList *handle, uint64_t *out) {
    *out = ((const List *)handle)->len;
    return HURRAY_OK;
}

static int32_t find(const HurrayBufferList *handle, uint64_t index, Buffer **out) {
    List *list = (List *)handle;
    if (index >= list->len) {
        return fail(HURRAY_ERR_INDEX_OUT_OF_BOUNDS, "the C program has no such buffer");
    }
    *out = &list->buffers[index];
    return HURRAY_OK;
}

static int32_t list_get(const HurrayBufferList *handle, uint64_t index, const HurrayBuffer **out) {
    Buffer *buffer;
    int32_t status = find(handle, index, &buffer);
    if (status == HURRAY_OK && atomic_load(&buffer->memory.released)) {
        status = fail(HURRAY_ERR_RELEASED, "the C program's buffer has been let go");
    }
    if (status == HURRAY_OK) {
        *out = (const HurrayBuffer *)buffer;
    }
    return status;
}

static int32_t list_release(HurrayBufferList *handle, uint64_t index, uintptr_t stream) {
    Buffer *buffer;
    int32_t status = find(handle, index, &buffer);
    if (status != HURRAY_OK) {
        return status;
    }
    if (stream == 0) {
        return fail(HURRAY_ERR_INVALID_STREAM, "stream 0");
    }
    if (stream == HURRAY_NO_STREAM) {
        return let_go(&buffer->memory, buffer->memory.stream);
    }
    status = let_go(&buffer->memory, (void *)stream);
    if (status == HURRAY_OK) {
        atomic_fetch_add(&ordered_releases, 1);
        atomic_store(&last_stream, stream);
    }
    return status;
}

static int32_t list_release_after(HurrayBufferList **handle, uintptr_t stream) {
    List *list = (List *)*handle;
    if (list == NULL) {
        return HURRAY_OK;
    }
    if (stream == 0) {
        return fail(HURRAY_ERR_INVALID_STREAM, "stream 0");
    }
    for (uint64_t i = 0; i < list->len; i++) {
        if (!atomic_load(&list->buffers[i].memory.released)) {
            list_release(*handle, i, stream);
        }
    }
    *handle = NULL;
    free(list->descriptor);
    free(list);
    atomic_fetch_sub(&live_lists, 1);
    return HURRAY_OK;
}

static int32_t list_destroy(HurrayBufferList **handle) {
    return list_release_after(handle, HURRAY_NO_STREAM);
}

static int32_t buffer_info(const HurrayBuffer *handle, HurrayBufferInfo *out) {
    const Memory *memory = &((const Buffer *)handle)->memory;
    if (out->struct_size < sizeof *out) {
        return fail(HURRAY_ERR_SHORT_STRUCT, "HurrayBufferInfo is too short");
    }
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->data = (void *)(uintptr_t)memory->address;
    out->byte_size = memory->size;
    out->alignment = 256;
    out->device_tag = CUDA;
    out->sync_mode = memory->sync_mode;
    return HURRAY_OK;
}

static int32_t buffer_sync(const HurrayBuffer *handle, HurrayBufferSync *out) {
    const Memory *memory = &((const Buffer *)handle)->memory;
    if (out->struct_size < sizeof *out) {
        return fail(HURRAY_ERR_SHORT_STRUCT, "HurrayBufferSync is too short");
    }
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->sync_mode = memory->sync_mode;
    out->event = memory->event;
    out->stream = memory->sync_mode == CONSUMER_STREAM ? (uintptr_t)memory->stream : 0;
    return HURRAY_OK;
}

static int32_t buffer_wait(const HurrayBuffer *handle, uintptr_t stream) {
    const Memory *memory = &((const Buffer *)handle)->memory;
    if (stream == 0 || stream == HURRAY_NO_STREAM) {
        return fail(HURRAY_ERR_INVALID_STREAM, "no stream");
    }
    int code = enter();
    if (code == 0 && memory->sync_mode == EVENT) {
        code = cuStreamWaitEvent((void *)stream, memory->event, 0);
    } else if (code == 0 && memory->sync_mode == CONSUMER_STREAM) {
        code = follow((void *)stream, memory->stream);
    }
    return leave(code);
}

static int32_t buffer_wait_host(const HurrayBuffer *handle) {
    int code = enter();
    if (code == 0) {
        code = cuStreamSynchronize(((const Buffer *)handle)->memory.stream);
    }
    return leave(code);
}

static int32_t event_release(HurrayBufferList *handle, uint64_t index) {
    Buffer *buffer;
    int32_t status = find(handle, index, &buffer);
    if (status != HURRAY_OK || buffer->memory.event == NULL) {
        return status;
    }
    if (atomic_load(&buffer->memory.released) || atomic_load(&buffer->memory.event_released)) {
        atomic_fetch_add(&wrong_releases, 1);
        return fail(HURRAY_ERR_RELEASED, "the C program's event was let go before");
    }
    int code = enter();
    let_event_go(&buffer->memory);
    return leave(code);
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

int32_t device_list_new(const uint8_t *descriptor, uint64_t descriptor_len, const DeviceBuffer *buffers, uint64_t len,
                        HurrayBufferList **list, const HurrayCapsuleContext **context) {
    List *made = calloc(1, sizeof *made + len * sizeof *made->buffers);
    HurrayBufferList *handle = (HurrayBufferList *)made;
    if (made == NULL) {
        return fail(HURRAY_ERR_OUT_OF_MEMORY, "no memory");
    }
    atomic_fetch_add(&live_lists, 1);
    made->api = &table;
    made->descriptor = malloc(descriptor_len);
    if (made->descriptor == NULL) {
        list_destroy(&handle);
        return fail(HURRAY_ERR_OUT_OF_MEMORY, "no memory");
    }
    memcpy(made->descriptor, descriptor, descriptor_len);
    for (uint64_t i = 0; i < len; i++) {
        made->buffers[i].api = &table;
        int32_t status = fill(&made->buffers[i].memory, &buffers[i]);
        made->len += made->buffers[i].memory.address != 0;
        if (status != HURRAY_OK) {
            list_destroy(&handle);
            return status;
        }
    }
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

/* Callbacks: the context is the `Memory`. */

static void release(void *data, void *context) {
    (void)data;
    Memory *memory = context;
    let_go(memory, memory->stream);
    free(memory);
}

static void release_after(void *data, void *context, void *event) {
    (void)data;
    Memory *memory = context;
    int code = enter();
    if (code == 0 && cuStreamWaitEvent(memory->stream, event, 0) != 0) {
        code = cuEventSynchronize(event);
    }
    /* Memory of which nothing is known stays. */
    if (leave(code) == HURRAY_OK) {
        let_go(memory, memory->stream);
    }
    atomic_fetch_add(&ordered_releases, 1);
    free(memory);
}

static void release_event(void *event, void *context) {
    Memory *memory = context;
    if (event != memory->event || atomic_load(&memory->released)) {
        atomic_fetch_add(&wrong_releases, 1);
    }
    int code = enter();
    let_event_go(memory);
    leave(code);
}

static int32_t linked_buffer(const Linked *linked, int32_t ordered, const DeviceBuffer *said, HurrayBuffer **out) {
    Memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        return HURRAY_ERR_OUT_OF_MEMORY;
    }
    int32_t status = fill(memory, said);
    if (status == HURRAY_OK) {
        const HurrayBufferDesc desc = {
            .struct_size = sizeof desc,
            .data = (void *)(uintptr_t)memory->address,
            .byte_size = memory->size,
            .device_tag = CUDA,
            .sync_mode = memory->sync_mode,
            .event = memory->event,
            .stream = memory->sync_mode == CONSUMER_STREAM ? (uintptr_t)memory->stream : 0,
            .release = release,
            .release_context = memory,
            .event_release = memory->event == NULL ? NULL : release_event,
            .event_context = memory->event == NULL ? NULL : memory,
            .release_after = ordered ? release_after : NULL,
        };
        status = linked->buffer_from_ptr(&desc, out);
    }
    if (status != HURRAY_OK && memory->address != 0) {
        let_go(memory, memory->stream);
    }
    if (status != HURRAY_OK) {
        free(memory);
    }
    return status;
}

int32_t linked_list_new(const Linked *linked, int32_t ordered, const uint8_t *descriptor, uint64_t descriptor_len,
                        const DeviceBuffer *buffers, uint64_t len, HurrayBufferList **list,
                        const HurrayCapsuleContext **context) {
    HurrayBuffer *made[3] = {NULL, NULL, NULL};
    uint64_t n = 0;
    int32_t status = HURRAY_OK;
    for (; n < len && n < 3 && status == HURRAY_OK; n++) {
        status = linked_buffer(linked, ordered, &buffers[n], &made[n]);
    }
    if (status == HURRAY_OK) {
        status = linked->list_new(made, n, descriptor, descriptor_len, list);
    } else if (n > 1) {
        /* What was made goes as a list of its own. */
        if (linked->list_new(made, n - 1, descriptor, descriptor_len, list) == HURRAY_OK) {
            linked->list_destroy(list);
        }
    }
    return status == HURRAY_OK ? linked->list_context(*list, context) : status;
}

/* The consumer. */

/* Makes `stream` wait by what `buffer_sync` gives. */
static int32_t wait_self(const HurrayApi *api, const HurrayBuffer *buffer, void *stream) {
    HurrayBufferSync sync = {.struct_size = sizeof sync};
    int32_t status = api->buffer_sync(buffer, &sync);
    if (status != HURRAY_OK) {
        return status;
    }
    int code = 0;
    if (sync.event != NULL) {
        code = cuStreamWaitEvent(stream, sync.event, 0);
    } else if (sync.stream != 0 && (void *)sync.stream != stream) {
        code = follow(stream, (void *)sync.stream);
    }
    return code == 0 ? HURRAY_OK : HURRAY_ERR_DEVICE;
}

/* Queues a read of buffer `index` on `stream`. */
static int32_t read_buffer(const HurrayApi *api, HurrayBufferList *list, uint64_t index, uintptr_t stream, int32_t how) {
    const HurrayBuffer *buffer;
    int32_t status = api->list_get(list, index, &buffer);
    if (status != HURRAY_OK) {
        return status;
    }
    HurrayBufferInfo info = {.struct_size = sizeof info};
    status = api->buffer_info(buffer, &info);
    if (status == HURRAY_OK && info.device_tag != CUDA) {
        status = HURRAY_ERR_UNSUPPORTED;
    }
    if (status == HURRAY_OK) {
        status = how == DEVICE_SELF ? wait_self(api, buffer, (void *)stream) : api->buffer_wait(buffer, stream);
    }
    if (status == HURRAY_OK) {
        status = api->event_release(list, index);
    }
    if (status != HURRAY_OK) {
        return status;
    }
    Address target;
    int code = cuMemAllocAsync(&target, info.byte_size, (void *)stream);
    if (code == 0) {
        code = cuMemcpyDtoDAsync_v2(target, (Address)(uintptr_t)info.data, info.byte_size, (void *)stream);
        cuMemFreeAsync(target, (void *)stream);
    }
    return code == 0 ? HURRAY_OK : HURRAY_ERR_DEVICE;
}

int32_t device_consume(HurrayBufferList *list, const HurrayCapsuleContext *context, uintptr_t stream, int32_t how) {
    const HurrayApi *api = context->api;
    int code = enter();
    uint64_t len = 0;
    int32_t status = code == 0 ? api->list_len(list, &len) : HURRAY_ERR_DEVICE;
    for (uint64_t i = 0; i < len && status == HURRAY_OK; i++) {
        status = read_buffer(api, list, i, stream, how);
    }
    /* What was queued is on the stream, whatever failed after it. */
    for (uint64_t i = len; i-- > 0 && how == DEVICE_EACH && status == HURRAY_OK;) {
        status = api->list_release(list, i, stream);
    }
    if (how == DEVICE_AFTER && status == HURRAY_OK) {
        status = api->list_release_after(&list, stream);
    }
    if (list != NULL) {
        if (how == DEVICE_SELF || status != HURRAY_OK) {
            cuStreamSynchronize((void *)stream);
        }
        int32_t destroyed = api->list_destroy(&list);
        status = status == HURRAY_OK ? destroyed : status;
    }
    leave(0);
    return status;
}

uint64_t device_live_lists(void) {
    return atomic_load(&live_lists);
}

uint64_t device_live_buffers(void) {
    return atomic_load(&live_buffers);
}

uint64_t device_live_events(void) {
    return atomic_load(&live_events);
}

uint64_t device_wrong_releases(void) {
    return atomic_load(&wrong_releases);
}

uint64_t device_ordered_releases(void) {
    return atomic_load(&ordered_releases);
}

uintptr_t device_last_stream(void) {
    return atomic_load(&last_stream);
}
