"""The smoke stage: run a rewritten script on an NPU and compare it with a reference.

What runs in the parent imports no torch and nothing of the user's. ``child``, ``record``,
``devices`` and ``randomness`` run in the child processes.
"""
