/* Devices, contexts, versions and errors. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread char recent_error[512];
static __thread int32_t current = 0;
static char contexts[MAX_DEVICES];

/* ---- errors */

aclError sim_error(aclError code, const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(recent_error, sizeof recent_error, format, words);
    va_end(words);
    return code;
}

aclError sim_unsupported(const char *function) {
    fprintf(stderr, "cuda2npu: %s is not simulated\n", function);
    return sim_error(NOT_SIMULATED, "%s is not simulated: run this part on a real NPU", function);
}

API const char *aclGetRecentErrMsg(void) { return recent_error; }
API aclError aclrtGetLastError(int level) { return (void)level, SUCCESS; }
API aclError aclrtPeekAtLastError(int level) { return (void)level, SUCCESS; }

/* ---- what is simulated */

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static const char *chip(void) { return setting("CUDA2NPU_SIMULATE_CHIP", "Ascend910B1"); }

static int chip_is(const char *prefix) { return strncmp(chip(), prefix, strlen(prefix)) == 0; }

/* The devices that ASCEND_RT_VISIBLE_DEVICES leaves; as in CANN, an id that does not exist or
 * comes twice ends the list. */
static int32_t visible(int32_t all) {
    const char *list = getenv("ASCEND_RT_VISIBLE_DEVICES");
    char seen[MAX_DEVICES] = {0};
    int32_t count = 0;
    if (!list) return all;
    while (*list) {
        char *end;
        long id = strtol(list, &end, 10);
        if (end == list || id < 0 || id >= all || seen[id]) break;
        seen[id] = 1;
        count++;
        if (*end != ',') break;
        list = end + 1;
    }
    return count;
}

int32_t sim_device_count(void) {
    int32_t all = atoi(setting("CUDA2NPU_SIMULATE_DEVICES", "1"));
    return visible(all > MAX_DEVICES ? MAX_DEVICES : all);
}

int32_t sim_device(void) { return current; }

uint64_t sim_device_memory(void) {
    const char *value = getenv("CUDA2NPU_SIMULATE_MEMORY");
    if (value && *value) return strtoull(value, NULL, 10);
    if (chip_is("Ascend910A") || chip_is("Ascend910Pro") || chip_is("Ascend910B4"))
        return 32ull << 30;
    if (chip_is("Ascend310P")) return 24ull << 30;
    return 64ull << 30;
}

static int64_t cube_cores(void) {
    if (chip_is("Ascend310P")) return 8;
    if (chip_is("Ascend910A") || chip_is("Ascend910Pro")) return 32;
    if (chip_is("Ascend910B3") || chip_is("Ascend910B4")) return 20;
    return 24;
}

static int64_t vector_cores(void) {
    return chip_is("Ascend310P") || chip_is("Ascend910A") ? cube_cores() : 2 * cube_cores();
}

API const char *aclrtGetSocName(void) { return sim_device_count() ? chip() : NULL; }

/* ---- start and end */

API aclError aclInit(const char *config) { return (void)config, SUCCESS; }
API aclError aclFinalize(void) { return SUCCESS; }

API aclError aclrtGetRunMode(int *mode) { return *mode = 1 /* host */, SUCCESS; }

API aclError aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch) {
    *major = 1, *minor = 15, *patch = 0;
    return SUCCESS;
}

#define CANN_VERSION "8.5.0"
#define DRIVER_VERSION "25.5.0"

struct package_version {
    char version[128], major[64], minor[64], release[64], patch[64], reserved[128];
};

API aclError aclsysGetCANNVersion(int package, struct package_version *answer) {
    enum { DRIVER = 7 };
    memset(answer, 0, sizeof *answer);
    strcpy(answer->version, package == DRIVER ? DRIVER_VERSION : CANN_VERSION);
    sscanf(answer->version, "%63[^.].%63[^.].%63s", answer->major, answer->minor, answer->release);
    return SUCCESS;
}

API aclError aclsysGetVersionStr(char *package, char *answer) {
    strcpy(answer, strcasestr(package, "driver") ? DRIVER_VERSION : CANN_VERSION);
    return SUCCESS;
}

/* ---- devices */

API aclError aclrtGetDeviceCount(uint32_t *count) {
    *count = (uint32_t)sim_device_count();
    return SUCCESS;
}

API aclError aclrtSetDevice(int32_t device) {
    if (device < 0 || device >= sim_device_count())
        return sim_error(INVALID_DEVICE, "device %d of %d does not exist", device,
                         sim_device_count());
    current = device;
    return SUCCESS;
}

API aclError aclrtGetDevice(int32_t *device) { return *device = current, SUCCESS; }
API aclError aclrtResetDevice(int32_t device) { return (void)device, SUCCESS; }
API aclError aclrtResetDeviceForce(int32_t device) { return (void)device, SUCCESS; }
API aclError aclrtDeviceTaskAbort(int32_t device, uint32_t t) { return (void)device, (void)t, SUCCESS; }

API aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t *logic) {
    return *logic = user, SUCCESS;
}

API aclError aclrtGetCurrentContext(void **context) {
    return *context = &contexts[current], SUCCESS;
}

API aclError aclrtSetCurrentContext(void *context) {
    ptrdiff_t device = (char *)context - contexts;
    if (device < 0 || device >= MAX_DEVICES) return sim_error(PARAM_INVALID, "no such context");
    return aclrtSetDevice((int32_t)device);
}

API aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
    (void)device;
    if (flags) *flags = 0;
    if (active) *active = 1;
    return SUCCESS;
}

API aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
    return *can = device != peer, SUCCESS;
}

API aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
    return (void)peer, (void)flags, SUCCESS;
}

API aclError aclrtDeviceGetBareTgid(int32_t *pid) { return *pid = getpid(), SUCCESS; }

API aclError aclrtDeviceGetUuid(int32_t device, char *uuid) {
    memset(uuid, 0, 16);
    uuid[15] = (char)(device + 1);
    return SUCCESS;
}

struct utilization {
    int32_t cube, vector, aicpu, memory;
    void *extension;
};

API aclError aclrtGetDeviceUtilizationRate(int32_t device, struct utilization *rate) {
    (void)device;
    rate->cube = rate->vector = rate->aicpu = rate->memory = 0;
    return SUCCESS;
}

API aclError aclGetDeviceCapability(uint32_t device, int what, int64_t *value) {
    (void)device;
    *value = what == 0 ? cube_cores() : what == 1 ? vector_cores() : 192 << 20 /* L2 cache */;
    return SUCCESS;
}

API aclError aclrtGetDeviceInfo(uint32_t device, int what, int64_t *value) {
    switch (what) {
    case 101: case 102: return *value = cube_cores(), SUCCESS;
    case 201: return *value = vector_cores(), SUCCESS;
    case 204: return *value = 192 << 10, SUCCESS;
    case 301: return *value = (int64_t)sim_device_memory(), SUCCESS;
    case 302: return *value = 192 << 20, SUCCESS;
    case 402: return *value = device, SUCCESS;
    case 401: case 403: case 404: case 405: case 501: return *value = 0, SUCCESS;
    default: return sim_error(PARAM_INVALID, "device attribute %d is not simulated", what);
    }
}

/* ---- limits of cores, per device: kept, without effect */

static uint32_t core_limit[MAX_DEVICES][2];

API aclError aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t *value) {
    if (device < 0 || device >= MAX_DEVICES || kind < 0 || kind > 1)
        return sim_error(PARAM_INVALID, "no such limit");
    *value = core_limit[device][kind];
    if (!*value) *value = (uint32_t)(kind ? vector_cores() : cube_cores());
    return SUCCESS;
}

API aclError aclrtSetDeviceResLimit(int32_t device, int kind, uint32_t value) {
    if (device < 0 || device >= MAX_DEVICES || kind < 0 || kind > 1)
        return sim_error(PARAM_INVALID, "no such limit");
    core_limit[device][kind] = value;
    return SUCCESS;
}

API aclError aclrtResetDeviceResLimit(int32_t device) {
    if (device < 0 || device >= MAX_DEVICES) return sim_error(PARAM_INVALID, "no such device");
    core_limit[device][0] = core_limit[device][1] = 0;
    return SUCCESS;
}

API aclError aclrtGetResInCurrentThread(int kind, uint32_t *value) {
    return aclrtGetDeviceResLimit(current, kind, value);
}

API aclError aclrtGetStreamResLimit(void *stream, int kind, uint32_t *value) {
    return (void)stream, aclrtGetDeviceResLimit(current, kind, value);
}

API aclError aclrtSetStreamResLimit(void *stream, int kind, uint32_t value) {
    return (void)stream, (void)kind, (void)value, SUCCESS;
}

API aclError aclrtResetStreamResLimit(void *stream) { return (void)stream, SUCCESS; }
API aclError aclrtUseStreamResInCurrentThread(void *stream) { return (void)stream, SUCCESS; }
API aclError aclrtUnuseStreamResInCurrentThread(void *stream) { return (void)stream, SUCCESS; }

/* ---- settings: taken, without effect */

API aclError aclrtSetDeviceSatMode(int mode) { return (void)mode, SUCCESS; }
API aclError aclrtGetDeviceSatMode(int *mode) { return *mode = 1, SUCCESS; }
API aclError aclrtSetSysParamOpt(int what, int64_t value) { return (void)what, (void)value, SUCCESS; }
API aclError aclrtCtxSetSysParamOpt(int what, int64_t value) { return (void)what, (void)value, SUCCESS; }
API aclError aclrtGetSysParamOpt(int what, int64_t *value) { return (void)what, *value = 0, SUCCESS; }
API aclError aclrtCtxGetSysParamOpt(int what, int64_t *value) { return (void)what, *value = 0, SUCCESS; }
API aclError aclrtSetOpWaitTimeout(uint32_t seconds) { return (void)seconds, SUCCESS; }
API aclError aclrtSetOpExecuteTimeOut(uint32_t seconds) { return (void)seconds, SUCCESS; }

API aclError aclrtSetOpExecuteTimeOutV2(uint64_t asked, uint64_t *given) {
    if (given) *given = asked;
    return SUCCESS;
}

API aclError aclrtSetExceptionInfoCallback(void *callback) { return (void)callback, SUCCESS; }
