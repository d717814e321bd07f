/* The consumer of consumer.c. */
#ifndef CONSUMER_H
#define CONSUMER_H

#include "hurray.h"

/*
 * Adds up all bytes of all buffers and takes the list. Returns HURRAY_OK, and the list is gone; or what went wrong, and it is still the
 * capsule's. `*problem` is a text that needs no freeing.
 */
int32_t consume(HurrayBufferList *list, const HurrayCapsuleContext *context, uint64_t *sum, const char **problem);

#endif
