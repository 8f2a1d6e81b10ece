"""Move PyTorch code from CUDA to Huawei Ascend NPUs.

``cuda2npu.engine.rewrite_source`` is the pure function at the heart; importing this package
alone imports nothing heavy, so that the command line starts fast.
"""

__version__ = "0.1.0"
