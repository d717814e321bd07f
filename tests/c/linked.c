/* The library's symbols on handles of producer.c, and consumer.c on lists that the library made. */
#include "consumer.h"
#include "producer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, hurray_last_error()); \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

static const uint8_t descriptor[10] = "HRRY\1";

static void symbols_on_the_other_library(void) {
    const ProducerBuffer two[2] = {
        {.byte_size = 32, .fill = 3},
        {.byte_size = 64, .device_tag = 1, .device_id = 5, .sync_mode = 1, .flags = HURRAY_READ_ONLY},
    };
    HurrayBufferList *list;
    HurrayCapsuleContext *context;
    CHECK(producer_list_new(descriptor, sizeof descriptor, two, 2, &list, &context) == HURRAY_OK);

    uint64_t len;
    CHECK(hurray_buffer_list_len(list, &len) == HURRAY_OK && len == 2);
    const HurrayBuffer *buffer;
    CHECK(hurray_buffer_list_get(list, 2, &buffer) == HURRAY_ERR_INDEX_OUT_OF_BOUNDS);
    CHECK(strstr(hurray_last_error(), "the C producer has no such buffer") != NULL);
    CHECK(hurray_buffer_list_get(list, 1, &buffer) == HURRAY_OK);

    HurrayBufferInfo info = {.struct_size = sizeof info};
    CHECK(hurray_buffer_info(buffer, &info) == HURRAY_OK);
    CHECK(info.device_tag == 1 && info.device_id == 5 && info.sync_mode == 1 && info.flags == HURRAY_READ_ONLY);
    HurrayBufferSync sync = {.struct_size = sizeof sync};
    CHECK(hurray_buffer_sync(buffer, &sync) == HURRAY_OK);
    CHECK(sync.event != NULL && sync.stream == 0);
    CHECK(hurray_buffer_wait(buffer, 0) == HURRAY_ERR_INVALID_STREAM);
    CHECK(hurray_buffer_wait(buffer, 1) == HURRAY_ERR_UNSUPPORTED);
    CHECK(hurray_buffer_wait_host(buffer) == HURRAY_ERR_UNSUPPORTED);

    CHECK(hurray_event_release(list, 1) == HURRAY_OK);
    CHECK(producer_live_events() == 0 && producer_live_buffers() == 2);
    CHECK(hurray_buffer_list_release(list, 1, 1) == HURRAY_ERR_UNSUPPORTED);
    CHECK(hurray_buffer_list_release(list, 1, HURRAY_NO_STREAM) == HURRAY_OK);
    CHECK(producer_live_buffers() == 1);
    CHECK(hurray_buffer_list_get(list, 1, &buffer) == HURRAY_ERR_RELEASED);

    /* What the library makes and destroys is its own only. */
    const HurrayCapsuleContext *other = NULL;
    CHECK(hurray_buffer_list_context(list, &other) == HURRAY_ERR_INVALID_ARGUMENT && other == NULL);
    CHECK(hurray_buffer_list_get(list, 0, &buffer) == HURRAY_OK);
    HurrayBuffer *borrowed = (HurrayBuffer *)buffer;
    CHECK(hurray_buffer_destroy(&borrowed) == HURRAY_ERR_INVALID_ARGUMENT);
    HurrayBufferList *none = NULL;
    CHECK(hurray_buffer_list_new(&borrowed, 1, descriptor, sizeof descriptor, &none) == HURRAY_ERR_INVALID_ARGUMENT);
    CHECK(none == NULL && borrowed == buffer && producer_live_buffers() == 1);

    CHECK(hurray_buffer_list_release_after(&list, HURRAY_NO_STREAM) == HURRAY_OK);
    CHECK(list == NULL && producer_live_lists() == 0 && producer_live_buffers() == 0);
    CHECK(hurray_buffer_list_destroy(&list) == HURRAY_OK);
}

static int released;

static void release(void *data, void *block) {
    (void)data;
    released++;
    free(block);
}

static HurrayBuffer *make(uint64_t size, uint8_t fill) {
    void *block = malloc(size + 1);
    CHECK(block != NULL);
    memset(block, fill, size + 1);
    const HurrayBufferDesc desc = {
        .struct_size = sizeof desc,
        .data = block,
        .byte_size = size,
        .release = release,
        .release_context = block,
    };
    HurrayBuffer *buffer = NULL;
    CHECK(hurray_buffer_from_ptr(&desc, &buffer) == HURRAY_OK);
    return buffer;
}

static HurrayBufferList *make_list(const HurrayCapsuleContext **context) {
    HurrayBuffer *buffers[3] = {make(100, 2), make(0, 0), make(9, 5)};
    HurrayBufferList *list = NULL;
    CHECK(hurray_buffer_list_new(buffers, 3, descriptor, sizeof descriptor, &list) == HURRAY_OK);
    CHECK(buffers[0] == NULL && buffers[1] == NULL && buffers[2] == NULL);
    CHECK(hurray_buffer_list_context(list, context) == HURRAY_OK);
    CHECK((*context)->descriptor != descriptor && (*context)->descriptor_len == sizeof descriptor);
    CHECK(memcmp((*context)->descriptor, descriptor, sizeof descriptor) == 0);
    return list;
}

static void *release_all(void *list) {
    for (uint64_t i = 0; i < 3; i++) {
        int32_t status = hurray_buffer_list_release(list, i, HURRAY_NO_STREAM);
        CHECK(status == HURRAY_OK || status == HURRAY_ERR_RELEASED);
    }
    return NULL;
}

static void the_other_consumer_on_our_lists(void) {
    const HurrayCapsuleContext *context;
    HurrayBufferList *list = make_list(&context);
    uint64_t sum;
    const char *problem;
    CHECK(consume(list, context, &sum, &problem) == HURRAY_OK);
    CHECK(sum == 245 && released == 3);

    released = 0;
    list = make_list(&context);
    CHECK(hurray_buffer_list_release(list, 2, HURRAY_NO_STREAM) == HURRAY_OK && released == 1);
    CHECK(consume(list, context, &sum, &problem) == HURRAY_ERR_RELEASED);
    CHECK(strstr(problem, "buffer 2") != NULL);
    CHECK(released == 1);
    CHECK(hurray_buffer_list_destroy(&list) == HURRAY_OK && released == 3);

    released = 0;
    HurrayBuffer *alone = make(5, 0);
    CHECK(hurray_buffer_destroy(&alone) == HURRAY_OK && released == 1 && alone == NULL);
}

/* Each release function runs once, whoever calls. `released` is not atomic: each block is freed once or AddressSanitizer stops the program. */
static void threads_on_our_lists(void) {
    for (int round = 0; round < 100; round++) {
        const HurrayCapsuleContext *context;
        HurrayBufferList *list = make_list(&context);
        pthread_t threads[8];
        for (int i = 0; i < 8; i++) {
            CHECK(pthread_create(&threads[i], NULL, release_all, list) == 0);
        }
        for (int i = 0; i < 8; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        CHECK(hurray_buffer_list_destroy(&list) == HURRAY_OK);
    }
}

int main(void) {
    CHECK(sizeof(HurrayApi) == 96 && HURRAY_NO_STREAM == (uintptr_t)-1);
    symbols_on_the_other_library();
    the_other_consumer_on_our_lists();
    threads_on_our_lists();
    return 0;
}
