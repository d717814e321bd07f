/* consumer.c takes the lists of producer.c: two programs that share the header and nothing else. */
#include "consumer.h"
#include "producer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

/* As much of a descriptor as consumer.c looks at. */
static const uint8_t descriptor[10] = "HRRY\1";

static HurrayBufferList *list;
static HurrayCapsuleContext *context;

static void produce(const ProducerBuffer *buffers, uint64_t len) {
    CHECK(producer_list_new(descriptor, sizeof descriptor, buffers, len, &list, &context) == HURRAY_OK);
}

static void nothing_lives(void) {
    CHECK(producer_live_lists() == 0);
    CHECK(producer_live_buffers() == 0);
    CHECK(producer_live_events() == 0);
    CHECK(producer_double_releases() == 0);
}

static void destroy(void) {
    CHECK(context->api->list_destroy(&list) == HURRAY_OK);
    CHECK(list == NULL);
    nothing_lives();
}

int main(void) {
    const ProducerBuffer three[3] = {
        {.byte_size = 100, .fill = 1},
        {.byte_size = 0},
        {.byte_size = 10, .fill = 7},
    };
    uint64_t sum;
    const char *problem;

    produce(three, 3);
    CHECK(consume(list, context, &sum, &problem) == HURRAY_OK);
    CHECK(sum == 170);
    nothing_lives();

    /* Whatever is refused stays whole and is destroyed by its capsule. */
    const uint32_t versions[2] = {2, 4};
    for (int i = 0; i < 2; i++) {
        produce(three, 3);
        context->abi_version = versions[i];
        CHECK(consume(list, context, &sum, &problem) != HURRAY_OK);
        CHECK(strcmp(problem, "another ABI version") == 0);
        CHECK(producer_live_buffers() == 3);
        destroy();
    }
    produce(three, 3);
    context->struct_size = 8;
    CHECK(consume(list, context, &sum, &problem) != HURRAY_OK);
    destroy();
    produce(three, 3);
    CHECK(consume(NULL, context, &sum, &problem) != HURRAY_OK);
    CHECK(consume(list, NULL, &sum, &problem) != HURRAY_OK);
    destroy();

    /* Mode event on a device: the consumer has none, and the event goes with the list. */
    const ProducerBuffer event[1] = {{.byte_size = 64, .device_tag = 1, .sync_mode = 1}};
    produce(event, 1);
    CHECK(producer_live_events() == 1);
    CHECK(consume(list, context, &sum, &problem) == HURRAY_ERR_UNSUPPORTED);
    destroy();
    return 0;
}
