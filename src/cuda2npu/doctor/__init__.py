"""Says whether this machine can run NPU code, and what to do where it cannot.

Nothing here imports torch: packages are looked up, files are read, and ``import torch_npu`` is
tried in a child process. ``machine`` is all that is asked of the system, ``table`` what fits what.
"""
