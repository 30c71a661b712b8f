"""One line for other builds: the passes of a compile, side by side, with the driver's result.

It is called once per compile, so its modules are imported one by one, when they are needed.
"""
