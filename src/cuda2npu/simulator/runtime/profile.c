/* Profilers: they start and stop, and there is no device activity to record. The functions stand
 * in libascendcl, libmsprofiler, libmspti, libms_tools_ext and libascend_hal, and are looked up
 * at run time. */
#include "sim.h"

#include <string.h>
#include <time.h>

static char anything[64]; /* what a handle points to that nobody looks into */

#define TAKEN(name) \
    API int name(void) { return SUCCESS; }
#define HANDLE(name) \
    API void *name(void) { return anything; }

/* ---- aclprof */

TAKEN(aclprofInit)
TAKEN(aclprofFinalize)
TAKEN(aclprofWarmup)
TAKEN(aclprofStart)
TAKEN(aclprofStop)
TAKEN(aclprofSetConfig)
TAKEN(aclprofDestroyConfig)
TAKEN(aclprofDestroyStepInfo)
TAKEN(aclprofGetStepTimestamp)
TAKEN(aclprofMarkEx)
TAKEN(aclprofRegisterDeviceCallback)
HANDLE(aclprofCreateConfig)
HANDLE(aclprofCreateStepInfo)

API aclError aclprofGetSupportedFeatures(size_t *size, void **features) {
    return *size = 0, *features = NULL, SUCCESS;
}

API aclError aclprofGetSupportedFeaturesV2(size_t *size, void **features) {
    return *size = 0, *features = NULL, SUCCESS;
}

/* ---- the driver, which a profiler asks for the frequency of the device's clock */

API int halGetAPIVersion(int *version) { return *version = 0x071905, SUCCESS; }

API int halGetDeviceInfo(uint32_t device, int32_t module, int32_t what, int64_t *value) {
    return (void)device, (void)module, (void)what, *value = 0, SUCCESS;
}

/* ---- mspti */

enum { NO_MORE_RECORDS = 1 };

TAKEN(msptiUnsubscribe)
TAKEN(msptiActivityRegisterCallbacks)
TAKEN(msptiActivityEnable)
TAKEN(msptiActivityDisable)
TAKEN(msptiActivityFlushAll)
TAKEN(msptiActivityPushExternalCorrelationId)
TAKEN(msptiActivityPopExternalCorrelationId)

API int msptiSubscribe(void **subscriber) { return *subscriber = anything, SUCCESS; }
API int msptiActivityGetNextRecord(void) { return NO_MORE_RECORDS; }

/* ---- mstx */

static uint64_t ranges;

API void mstxMarkA(const char *message, void *stream) { (void)message, (void)stream; }
API uint64_t mstxRangeStartA(const char *message, void *stream) {
    return (void)message, (void)stream, __atomic_add_fetch(&ranges, 1, __ATOMIC_RELAXED);
}
API void mstxRangeEnd(uint64_t range) { (void)range; }

HANDLE(mstxDomainCreateA)
API void mstxDomainDestroy(void *domain) { (void)domain; }
API void mstxDomainMarkA(void *domain, const char *message, void *stream) {
    (void)domain, mstxMarkA(message, stream);
}
API uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream) {
    return (void)domain, mstxRangeStartA(message, stream);
}
API void mstxDomainRangeEnd(void *domain, uint64_t range) { (void)domain, mstxRangeEnd(range); }

/* ---- the trace that the runtime itself writes */

TAKEN(MsprofRegisterCallback)
TAKEN(MsprofReportApi)
TAKEN(MsprofReportCompactInfo)
TAKEN(MsprofReportAdditionalInfo)

API uint64_t MsprofSysCycleTime(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

API uint64_t MsprofGetHashId(const char *words, size_t size) {
    uint64_t hash = 1469598103934665603u;
    for (size_t at = 0; at < size; at++) hash = (hash ^ (unsigned char)words[at]) * 1099511628211u;
    return hash;
}
