/* Streams and events. Work is done when it is handed over, so that nothing is ever waited for. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct stream {
    int32_t id;
    int32_t device;
};

struct event {
    uint64_t recorded; /* nanoseconds; 0 before the first record */
};

static int32_t last_stream;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- streams */

API aclError aclrtCreateStream(void **stream) {
    struct stream *made = malloc(sizeof *made);
    if (!made) return sim_error(OUT_OF_MEMORY, "host memory");
    *made = (struct stream){__atomic_add_fetch(&last_stream, 1, __ATOMIC_RELAXED), sim_device()};
    return *stream = made, SUCCESS;
}

API aclError aclrtCreateStreamWithConfig(void **stream, uint32_t priority, uint32_t flags) {
    return (void)priority, (void)flags, aclrtCreateStream(stream);
}

API aclError aclrtDestroyStream(void *stream) { return free(stream), SUCCESS; }
API aclError aclrtDestroyStreamForce(void *stream) { return free(stream), SUCCESS; }

API aclError aclrtStreamGetId(void *stream, int32_t *id) {
    return *id = stream ? ((struct stream *)stream)->id : 0, SUCCESS;
}

API aclError aclrtStreamQuery(void *stream, int *status) {
    return (void)stream, *status = 0 /* complete */, SUCCESS;
}

API aclError aclrtSynchronizeStream(void *stream) { return (void)stream, SUCCESS; }
API aclError aclrtSynchronizeStreamWithTimeout(void *stream, int32_t t) { return (void)stream, (void)t, SUCCESS; }
API aclError aclrtSynchronizeDevice(void) { return SUCCESS; }
API aclError aclrtSynchronizeDeviceWithTimeout(int32_t t) { return (void)t, SUCCESS; }
API aclError aclrtStreamWaitEvent(void *stream, void *event) { return (void)stream, (void)event, SUCCESS; }
API aclError aclrtSetStreamFailureMode(void *stream, uint64_t mode) { return (void)stream, (void)mode, SUCCESS; }
API aclError aclrtSetStreamAttribute(void *stream, int what, void *value) { return (void)stream, (void)what, (void)value, SUCCESS; }
API aclError aclrtSetStreamOverflowSwitch(void *stream, uint32_t flag) { return (void)stream, (void)flag, SUCCESS; }
API aclError aclrtGetStreamOverflowSwitch(void *stream, uint32_t *flag) { return (void)stream, *flag = 0, SUCCESS; }

/* ---- callbacks: called at once, as all work before them is done */

API aclError aclrtLaunchCallback(void (*call)(void *), void *data, int block, void *stream) {
    (void)block, (void)stream;
    return call(data), SUCCESS;
}

API aclError aclrtLaunchHostFunc(void *stream, void (*call)(void *), void *data) {
    (void)stream;
    return call(data), SUCCESS;
}

API aclError aclrtSubscribeReport(uint64_t thread, void *stream) { return (void)thread, (void)stream, SUCCESS; }
API aclError aclrtUnSubscribeReport(uint64_t thread, void *stream) { return (void)thread, (void)stream, SUCCESS; }

API aclError aclrtProcessReport(int32_t milliseconds) {
    usleep((useconds_t)(milliseconds > 0 ? milliseconds : 100) * 1000);
    return SUCCESS;
}

/* ---- events */

API aclError aclrtCreateEvent(void **event) {
    *event = calloc(1, sizeof(struct event));
    return *event ? SUCCESS : sim_error(OUT_OF_MEMORY, "host memory");
}

API aclError aclrtCreateEventWithFlag(void **event, uint32_t flags) {
    return (void)flags, aclrtCreateEvent(event);
}

API aclError aclrtCreateEventExWithFlag(void **event, uint32_t flags) {
    return (void)flags, aclrtCreateEvent(event);
}

API aclError aclrtDestroyEvent(void *event) { return free(event), SUCCESS; }
API aclError aclrtSynchronizeEvent(void *event) { return (void)event, SUCCESS; }

API aclError aclrtRecordEvent(void *event, void *stream) {
    (void)stream;
    return ((struct event *)event)->recorded = now(), SUCCESS;
}

API aclError aclrtResetEvent(void *event, void *stream) {
    (void)stream;
    return ((struct event *)event)->recorded = 0, SUCCESS;
}

API aclError aclrtQueryEventStatus(void *event, int *status) {
    return (void)event, *status = 1 /* complete */, SUCCESS;
}

API aclError aclrtQueryEventWaitStatus(void *event, int *status) {
    return (void)event, *status = 0 /* complete */, SUCCESS;
}

API aclError aclrtEventElapsedTime(float *milliseconds, void *from, void *to) {
    uint64_t start = ((struct event *)from)->recorded, end = ((struct event *)to)->recorded;
    enum { NOT_RECORDED = 107006 };
    if (!start || !end) return sim_error(NOT_RECORDED, "an event was not recorded");
    *milliseconds = (float)((double)((int64_t)(end - start)) / 1e6);
    return SUCCESS;
}

API aclError aclrtEventGetTimestamp(void *event, uint64_t *microseconds) {
    return *microseconds = ((struct event *)event)->recorded / 1000, SUCCESS;
}

/* ---- graphs: a stream is never captured, and the start of a capture says why */

API aclError aclmdlRICaptureGetInfo(void *stream, int *status, void **model) {
    (void)stream;
    *status = 0 /* not captured */;
    if (model) *model = NULL;
    return SUCCESS;
}

API aclError aclmdlRICaptureThreadExchangeMode(int *mode) { return (void)mode, SUCCESS; }

API aclError aclmdlRICaptureBegin(void *stream, int mode) {
    (void)stream, (void)mode;
    return sim_unsupported("aclmdlRICaptureBegin (torch.npu.NPUGraph, torch.npu.graph)");
}

API aclError aclmdlRICaptureEnd(void *stream, void **model) {
    (void)stream, (void)model;
    return sim_unsupported("aclmdlRICaptureEnd");
}

API aclError aclmdlRIExecuteAsync(void *model, void *stream) {
    (void)stream, (void)model;
    return sim_unsupported("aclmdlRIExecuteAsync");
}

API aclError aclmdlRIDestroy(void *model) { return (void)model, SUCCESS; }
