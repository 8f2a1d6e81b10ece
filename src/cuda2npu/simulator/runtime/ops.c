/* Operators: none runs here. What torch_npu prepares for one is taken, and running it says so. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

static void *handle(void) { return calloc(1, 16); }

API void *aclCreateTensorDesc(void) { return handle(); }
API void aclDestroyTensorDesc(void *it) { free(it); }
API void *aclCreateDataBuffer(void) { return handle(); }
API aclError aclDestroyDataBuffer(void *it) { return free(it), SUCCESS; }
API void *aclopCreateAttr(void) { return handle(); }
API void aclopDestroyAttr(void *it) { free(it); }

static aclError no_kernel(const char *op) {
    fprintf(stderr, "cuda2npu: the operator %s has no simulated kernel\n", op);
    return sim_error(NOT_SIMULATED, "the operator %s has no simulated kernel", op);
}

API aclError aclopCompileAndExecute(const char *op) { return no_kernel(op); }
API aclError aclopCompileAndExecuteV2(const char *op) { return no_kernel(op); }

/* Each is called while an operator is prepared; its answer is looked at only by what runs it. */
#define TAKEN(name) \
    API aclError name(void) { return SUCCESS; }
TAKEN(aclSetTensorDescName)
TAKEN(aclSetTensorFormat)
TAKEN(aclSetTensorPlaceMent)
TAKEN(aclSetTensorShape)
TAKEN(aclopSetAttrBool)
TAKEN(aclopSetAttrDataType)
TAKEN(aclopSetAttrFloat)
TAKEN(aclopSetAttrInt)
TAKEN(aclopSetAttrListBool)
TAKEN(aclopSetAttrListFloat)
TAKEN(aclopSetAttrListInt)
TAKEN(aclopSetAttrListListInt)
TAKEN(aclopSetAttrString)

/* ---- options of the operator compiler */

API aclError aclSetCompileopt(int what, const char *value) { return (void)what, (void)value, SUCCESS; }
API size_t aclGetCompileoptSize(int what) { return (void)what, 1; }

API aclError aclGetCompileopt(int what, char *value, size_t room) {
    (void)what;
    if (room) *value = 0;
    return SUCCESS;
}

API aclError aclopSetCompileFlag(int flag) { return (void)flag, SUCCESS; }

/* ---- logs and dumps: dropped */

API void aclAppLog(void) {}
TAKEN(aclmdlInitDump)
TAKEN(aclmdlFinalizeDump)
