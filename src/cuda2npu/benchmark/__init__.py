"""Measures how fast a script or a function is on a device, and compares two such results."""
