/* What the files of the simulated Ascend runtime share.
 *
 * The names and shapes of what is exported are those of the CANN headers in the torch_npu
 * wheel (include/third_party/acl). Device memory is host memory and every call is done when
 * it returns, so that streams and events need no more than bookkeeping. */
#ifndef CUDA2NPU_SIM_H
#define CUDA2NPU_SIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int aclError;

enum {
    SUCCESS = 0,
    PARAM_INVALID = 107000,
    INVALID_DEVICE = 107001,
    INVALID_HANDLE = 107017,
    OUT_OF_MEMORY = 207001,
    NO_MEMORY_TO_FREE = 207002,
    NOT_SIMULATED = 500000, /* an internal error: torch_npu only warns of an unsupported one */
};

/* Keeps the words that aclGetRecentErrMsg answers with, and returns the code. */
aclError sim_error(aclError code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The answer of every function that is not simulated: an error that names it. */
API aclError sim_unsupported(const char *function);

int32_t sim_device(void);
int32_t sim_device_count(void);
uint64_t sim_device_memory(void);

#define MAX_DEVICES 64

#endif
