/*
 * A consumer. It includes the header and links nothing: everything it calls is in the capsule's own table.
 * docs/c-abi.md quotes it from [begin] to [end].
 */
#include "consumer.h"

#include <string.h>

/* [begin] */
/* The version is read before anything else, and a size before what it covers. */
static int32_t check(const HurrayBufferList *list, const HurrayCapsuleContext *context, const char **problem) {
    *problem = NULL;
    if (list == NULL || context == NULL) {
        *problem = "no list or no context";
    } else if (context->abi_version != HURRAY_C_ABI_VERSION) {
        *problem = "another ABI version";
    } else if (context->struct_size < sizeof(HurrayCapsuleContext)) {
        *problem = "a short context";
    } else if (context->api == NULL || context->api->struct_size < sizeof(HurrayApi)) {
        *problem = "a short table";
    } else if (context->descriptor_len < 10 || memcmp(context->descriptor, "HRRY", 4) != 0) {
        *problem = "no descriptor";
    }
    return *problem == NULL ? HURRAY_OK : HURRAY_ERR_INVALID_ARGUMENT;
}

/* Looks at buffer `index` and adds its bytes to `*sum`. */
static int32_t add(const HurrayApi *api, const HurrayBufferList *list, uint64_t index, uint64_t *sum) {
    const HurrayBuffer *buffer; /* borrowed from the list */
    int32_t status = api->list_get(list, index, &buffer);
    if (status != HURRAY_OK) {
        return status;
    }
    HurrayBufferInfo info = {.struct_size = sizeof info};
    status = api->buffer_info(buffer, &info);
    if (status != HURRAY_OK) {
        return status;
    }
    if ((info.flags & HURRAY_DECLARED) != 0 || info.device_tag != 0) {
        return HURRAY_ERR_UNSUPPORTED; /* not in host memory, or not what the descriptor says */
    }
    if (info.sync_mode != 0) {
        status = api->buffer_wait_host(buffer);
        if (status != HURRAY_OK) {
            return status;
        }
    }
    const uint8_t *bytes = info.data;
    for (uint64_t i = 0; i < info.byte_size; i++) {
        *sum += bytes[i];
    }
    return HURRAY_OK;
}

int32_t consume(HurrayBufferList *list, const HurrayCapsuleContext *context, uint64_t *sum, const char **problem) {
    int32_t status = check(list, context, problem);
    if (status != HURRAY_OK) {
        return status;
    }
    const HurrayApi *api = context->api;
    uint64_t len;
    status = api->list_len(list, &len);
    *sum = 0;
    for (uint64_t i = 0; i < len && status == HURRAY_OK; i++) {
        status = add(api, list, i, sum);
    }
    if (status != HURRAY_OK) {
        *problem = api->last_error();
        return status;
    }
    /* From here on the list is ours. Buffers may go one by one, in any order; the rest goes with the list. */
    for (uint64_t i = len; i-- > 1;) {
        api->list_release(list, i, HURRAY_NO_STREAM);
    }
    return api->list_destroy(&list);
}
/* [end] */
