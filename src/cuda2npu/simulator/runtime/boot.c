/* Tells Python that torch_npu is being loaded.
 *
 * A script that imports torch_npu before torch keeps torch from loading the entry points of the
 * group torch.backends. This library is loaded in both cases, by the import of torch_npu._C. */
#include "sim.h"

#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void tell_python(void) {
    int (*holds_lock)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    int (*ready)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    const char *asked = getenv("CUDA2NPU_SIMULATE");
    if (!asked || !*asked || !holds_lock || !run || !ready || !ready() || !holds_lock()) return;
    run("__import__('cuda2npu.simulator.activate', fromlist=['']).torch_npu_is_loading()");
}
