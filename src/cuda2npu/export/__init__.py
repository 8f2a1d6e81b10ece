"""Exports a module to ONNX, checks the file, and writes the commands that compile it for an NPU."""
