"""Launcher for other builds: runs the passes of a compile in parallel, with the driver's result.

It runs once per compile, so modules are imported only when needed.
"""
